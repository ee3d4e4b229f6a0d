"""The strings that record_tokens.py encodes: scripts, spaces, numbers, code, special tokens."""

EDGES = [
    "", " ", "  ", "   ", "a", " a", "a ", "  a", "a  ", "  a  b   c    d     ", "\n", "\n\n",
    "\n\n\n", " \n", "\n ", " \n ", "\t", "\t\t", "\t\t\t\t", " \t ", "a\tb", "\ta\t\tb\t", "\r",
    "\r\n", "\r\n\r\n", "a\r\nb", "a\r\n\r\nb\r\n", "a\n\nb", "a \n b", "a\n  b\n    c\n", "\x0b",
    "\x0c", "a\x0bb\x0cc", "\x00", "a\x00b", "\x01\x02\x03\x1b[0m\x7f", '.' * 64, '-' * 80,
    '=' * 33, ' ' * 40, '\n' * 40, '\t' * 40, 'a' * 100, 'ab' * 60, 'A' * 30, '!?' * 10,
    '(' * 20 + ')' * 20, 'x ' * 20, ' x' * 20, "      indented six", "a         nine", "\n\n  \n\n",
    "word\n\n\n\nword", "trailing newline\n", "trailing spaces    ", "   \n   \n   text",
]

ENGLISH = [
    "Hello", "Hello world", "Hello, world!", "hello world", "HELLO WORLD", "HelloWorld",
    "The quick brown fox jumps over the lazy dog.", "It's we're they've I'm she'll he'd don't",
    "IT'S WE'RE THEY'VE I'M SHE'LL HE'D DON'T", "it' s 'tis 'twas rock'n'roll o'clock",
    "it\u2019s \u201cquoted\u201d \u2018text\u2019 \u2014 and\u2013so\u2026",
    "e.g. i.e. etc. vs. Dr. U.S.A.", "antidisestablishmentarianism",
    "supercalifragilisticexpialidocious", "co-operate re-enter",
    "snake_case camelCase PascalCase kebab-case SCREAMING_CASE",
    "What? No! Yes... (maybe); ok: fine",
    "Once upon a time, in a village by the sea, there lived a fisherman and his wife.",
    "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer",
    "a b c d e f g", "I I I I", "Mr. & Mrs. Smith @ 5:30pm #party $20 50% off ^_^ ~tilde~",
    "x\xa0y\u2003z\u3000w\u2028v\u2029u\x85t\u180eq\u200bp\ufeff",
    "Th\u0131s \u017fentence 'S '\u017f 'LL",
]

NUMBERS = [
    "0", "1", "12", "123", "1234", "12345", "1234567890", "3.14159", "1,000,000", "1e-10", "0x1F4",
    "-42", "+7", "2026-11-29", "12:34:56.789", "192.168.0.1", "555-0199", "50%", "$19.99",
    "1/2 \xbd \u2153", "\u0661\u0662\u0663 \u0967\u0968\u0969 \u0e51\u0e52\u0e53", "x2 y3 2x 3y",
    "v1.2.3-rc4", "\u2160\u2161\u2162 \u2460\u2461\u2462", "\xb2\xb3\xb9 H\u2082O",
    "1 2 3 4 5 6 7 8 9 10", "100000000000000000000000", "007", "\uff11\uff12\uff13",
    "1st 2nd 3rd 4th", "\U0001d7d8\U0001d7d9",
]

SCRIPTS = [
    "\u4f60\u597d", "\u4f60\u597d\uff0c\u4e16\u754c\uff01",
    "\u6211\u662f\u4e00\u4e2a\u5b66\u751f\u3002\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002",
    "\u4e2d\u6587 and English \u6df7\u5408 text 123",
    "\u7e41\u9ad4\u5b57\uff1a\u81fa\u7063\u3001\u9999\u6e2f",
    "\u3400\u4dbf \U00020000\U0002a6d6 \U00030000", "\u3053\u3093\u306b\u3061\u306f",
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c",
    "\u6771\u4eac\u30bf\u30ef\u30fc\u306f\u9ad8\u3044\u3067\u3059\u3002",
    "\u30b3\u30f3\u30d4\u30e5\u30fc\u30bf\u30fc \uff76\uff80\uff76\uff85 \uff21\uff22\uff23",
    "\u3072\u3089\u304c\u306a\u3000\u30ab\u30bf\u30ab\u30ca", "\uc548\ub155\ud558\uc138\uc694",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc744 \ud1a0\ud070\uc73c\ub85c \ub098\ub208\ub2e4.",
    "\u1112\u1161\u11ab\u1100\u1173\u11af", "\u3131\u3134\u3137",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u0627\u0644\u0644\u063a\u0629 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u062c"
    "\u0645\u064a\u0644\u0629\u060c \u0623\u0644\u064a\u0633 \u0643\u0630\u0644\u0643\u061f",
    "\u0628\u0650\u0633\u0652\u0645\u0650 \u0627\u0644\u0644\u0651\u064e\u0647\u0650",
    "\u06a9\u062a\u0627\u0628\u200c\u0647\u0627 \u0641\u0627\u0631\u0633\u06cc",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u05e2\u05d5\u05b9\u05dc\u05b8\u05dd",
    "\u05d1\u05e8\u05d0\u05e9\u05d9\u05ea \u05d1\u05e8\u05d0 \u05d0\u05dc\u05d4\u05d9\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\u092d\u093e\u0930\u0924 \u090f\u0915 \u0935\u093f"
    "\u0936\u093e\u0932 \u0926\u0947\u0936 \u0939\u0948\u0964",
    "\u0915\u094d\u0937\u0924\u094d\u0930\u093f\u092f",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22\u0e44\u0e21\u0e48"
    "\u0e21\u0e35\u0e0a\u0e48\u0e2d\u0e07\u0e27\u0e48\u0e32\u0e07",
    "\u0e01\u0e47\u0e44\u0e14\u0e49", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!",
    "\u0421\u044a\u0435\u0448\u044c \u0436\u0435 \u0435\u0449\u0451 "
    "\u044d\u0442\u0438\u0445 \u043c\u044f\u0433"
    "\u043a\u0438\u0445 \u0444\u0440\u0430\u043d\u0446\u0443\u0437\u0441\u043a\u0438\u0445 "
    "\u0431\u0443\u043b\u043e\u043a",
    "\u041c\u041e\u0421\u041a\u0412\u0410 \u0441\u0442\u043e\u043b\u0438\u0446\u0430",
    "\u0407\u0436\u0430\u043a \u0457\u0441\u0442\u044c \u0491\u0440\u0443\u043d\u0442",
    "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5",
    "\u1f10\u03bd \u1f00\u03c1\u03c7\u1fc7 \u1f26\u03bd \u1f41 \u03bb\u03cc\u03b3\u03bf\u03c2",
    "\u03b1\u03b2\u03b3 \u0391\u0392\u0393 \u03a3\u03c3\u03c2",
    "Stra\xdfe \xdcber Gr\xf6\xdfe \xc4rger", "\xc7a va? \u0152uvre no\xebl na\xefve d\xe9j\xe0 vu",
    "\xbfQu\xe9 tal? \xa1Ma\xf1ana!",
    "Za\u017c\xf3\u0142\u0107 g\u0119\u015bl\u0105 ja\u017a\u0144",
    "P\u0159\xedli\u0161 \u017elu\u0165ou\u010dk\xfd k\u016f\u0148",
    "\u0130stanbul \u0131\u015f\u0131k \u011f\xfc\u015f",
    "Ti\u1ebfng Vi\u1ec7t r\u1ea5t \u0111\u1eb9p", "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd",
    "\u09ac\u09be\u0982\u09b2\u09be \u09ad\u09be\u09b7\u09be",
    "\u0c24\u0c46\u0c32\u0c41\u0c17\u0c41", "\u0a2a\u0a70\u0a1c\u0a3e\u0a2c\u0a40",
    "\u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8", "\u0540\u0561\u0575\u0565\u0580\u0565\u0576",
    "\u12a0\u121b\u122d\u129b", "\u1019\u103c\u1014\u103a\u1019\u102c",
    "\u1781\u17d2\u1798\u17c2\u179a", "\u0f56\u0f7c\u0f51\u0f0b\u0f66\u0f90\u0f51\u0f0b",
    "\u13e3\u13b3\u13a9", "\U00010330\U00010331\U00010332", "\u16a0\u16a2\u16a6",
]

MARKS = [
    "e\u0301", "cafe\u0301 caf\xe9", "n\u0303 o\u0308 u\u0308",
    "Z\u0351\u036b\u0343a\u0336\u0321l\u0315g\u0321o\u0328", "a\u0300\u0301\u0302\u0303\u0304",
    "\u0301", " \u0301", "\ufb01 \ufb02 \u01c6", "\u200e\u200f\u202a\u202c", "a\u200db\u200cc",
    "\xad soft\xadhyphen", "\u2060word\u2060joiner", "\U000e0041\U000e0042", "\ue000\uf8ff",
    "\U000f0000\U0010ffff", "\ufffd", "\uffff",
]

EMOJI = [
    "\U0001f600", "\U0001f600\U0001f601\U0001f602", "I \u2764\ufe0f you", "\U0001f44d\U0001f3fd",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7",
    "1\ufe0f\u20e3 #\ufe0f\u20e3", "\U0001f9d1\U0001f3ff\u200d\U0001f4bb", "Hi\U0001f44b!",
    "\u2600\u2601\u2602", "\U0001fae0\U0001faf6", "\u2713 \u2717 \u2192 \u21d2 \u25b6",
    "\u2554\u2550\u2557\u2551", "\u266a\u266b", "\u20ac \xa3 \xa5 \u20bf \u20b9",
]

CODE = [
    "int main() { return 0; }", "for (int i = 0; i < n; ++i) {\n    sum += a[i];\n}\n",
    "def f(x):\n    return x ** 2\n\n\nprint(f(3))\n", "if (a && b || !c) { d ^= ~e; }",
    "#include <vector>\n\nstd::vector<std::string> v;", "x = {'a': 1, \"b\": [1, 2, 3]}",
    "SELECT * FROM t WHERE a >= 10 AND b <> 'x';",
    "<html><body><h1>Title</h1><p>Text &amp; more</p></body></html>",
    "<table><tr><td>1</td></tr></table>\n<ul><li>a</li></ul>",
    "<s>struck</s> <b>bold</b> <code>x</code>", "$ ls -la | grep foo > /dev/null 2>&1",
    "git commit -m \"fix: bug #123\"", "/* comment */ // line", "a->b.c::d", "\\n \\t \\\\ \\u0041",
    "{\"k\": null, \"t\": true}", "\tif x:\n\t\treturn\n", "        deep\n            deeper\n",
    "^[a-z0-9._%+-]+@[a-z]+\\.[a-z]{2,}$", "\\frac{a}{b} + \\sum_{i=1}^{n} x_i^2 $E=mc^2$",
    "| a | b |\n|---|---|\n| 1 | 2 |", "# Title\n\n- item\n- item\n\n```python\ncode\n```\n",
    "fn main() -> Result<(), Box<dyn Error>> { Ok(()) }", "let x = |y| y?;",
    "0b1010 0o17 0xFF 1_000_000", "a[b[c[d]]]", "((((()))))", "!@#$%^&*()_+-=[]{}|;':\",./<>?`~",
]

URLS = [
    "https://example.com", "https://example.com/path/to?x=1&y=2#frag",
    "http://localhost:8080/api/v1/users/42", "user.name+tag@example.co.uk",
    "ftp://files.example.org/a%20b.txt", "C:\\Windows\\System32\\drivers",
    "/usr/local/bin/python3.11", "www.example.com, see also example.org.",
]

SPECIAL = [
    "<|im_start|>", "<|im_end|>", "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>system\nYou are a helpful AI assistant<|im_end|>\n", "a<|im_end|>b",
    " <|im_end|> ", "<|im_end|><|im_end|>", "<|endoftext|>", "text<|endoftext|>\n", "<|im_end",
    "<|im_start|im_end|>", "<repo_name>a/b<file_sep>c.py\n", "<reponame><gh_stars>10",
    "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n", "<bos>", "<eos>", "<bos><bos>a",
    "<pad><unk><mask>", "a <eos> b", "<unused0><unused10><unused6241>", "<unused99999>",
    "[multimodal]", "<start_of_image><end_of_image>", "<s>", "</s>", "<0x0A>", "<0xFF> <0x41>",
    "[INST] hi [/INST]", "<|start_header_id|>user<|end_header_id|>\n\n", "\u2581", "\u2581\u2581a",
    "a\u2581b \u2581c", " \u2581 ", "<end_of_turn>\n\n\n<eos>   x",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
]

STRINGS = list(
    dict.fromkeys(EDGES + ENGLISH + NUMBERS + SCRIPTS + MARKS + EMOJI + CODE + URLS + SPECIAL))

# Not UTF-8. Hugging Face takes no such text.
DAMAGED = [
    b'\xff', b'a\x80b', b'\xc3', b'\xe4\xbd', b'ok \xf0\x9f\x98', b'\xed\xa0\x80', b'\xc0\xaf',
    b'\xf5\x80\x80\x80',
]
