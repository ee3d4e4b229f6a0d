"""Emits PTX by the LLVM route in processes that already hold another LLVM, whose symbols everyone sees,
and goes on using that one. Where there is no other LLVM: exit 77."""

import ctypes
import pathlib
import subprocess
import sys

SKIPPED = 77
FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
KEY, LLVM_ROUTE = b"gemv.q4_k.k4096.n14336.w4", 2


def others():
    """One of each version."""
    found = {}
    for folder in map(pathlib.Path, FOLDERS):
        for path in sorted(folder.glob("libLLVM*.so*")):
            found.setdefault(path.resolve(), path)
    return list(found)


class PtxInfo(ctypes.Structure):
    """The first members of lathe_ptx_info."""

    _fields_ = [("struct_size", ctypes.c_size_t), ("text", ctypes.c_char_p),
                ("text_bytes", ctypes.c_size_t), ("entry", ctypes.c_char_p),
                ("target", ctypes.c_char_p), ("compiler", ctypes.c_char_p)]


def emitted(library):
    """PTX by Lathe, and the compiler that made it."""
    key, compilers, ptx = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    info = PtxInfo(struct_size=ctypes.sizeof(PtxInfo))
    assert library.lathe_key_parse(KEY, ctypes.byref(key)) == 0
    assert library.lathe_compilers_open(None, ctypes.byref(compilers)) == 0
    assert library.lathe_ptx_emit(compilers, key, b"sm_90a", LLVM_ROUTE, ctypes.byref(ptx)) == 0
    assert library.lathe_ptx_get_info(ptx, ctypes.byref(info)) == 0
    return info.text, info.compiler.decode()


def use(llvm):
    """Makes and prints an empty module: the text, as that LLVM has it."""
    for name in ("LLVMContextCreate", "LLVMModuleCreateWithNameInContext",
                 "LLVMPrintModuleToString"):
        getattr(llvm, name).restype = ctypes.c_void_p
    context = ctypes.c_void_p(llvm.LLVMContextCreate())
    module = ctypes.c_void_p(llvm.LLVMModuleCreateWithNameInContext(b"guest", context))
    return ctypes.string_at(llvm.LLVMPrintModuleToString(module))


def beside(lathe, other):
    llvm = ctypes.CDLL(other, mode=ctypes.RTLD_GLOBAL) if other else None
    before = use(llvm) if llvm else b""
    text, compiler = emitted(ctypes.CDLL(lathe))
    assert not llvm or use(llvm) == before and b"guest" in before
    sys.stdout.write(f"{compiler}\n{text.decode()}")


def main():
    lathe, *other = sys.argv[1:]
    if other:
        return beside(lathe, other[0] if other[0] != "none" else None)
    found = others()
    if not found:
        print("skipped: there is no shared library of LLVM here")
        sys.exit(SKIPPED)
    texts = {}
    for llvm in ("none", *map(str, found)):
        run = subprocess.run([sys.executable, __file__, lathe, llvm], capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"beside {llvm}: status {run.returncode}\n{run.stderr}")
        texts[llvm] = run.stdout
        if run.stdout != texts["none"]:
            sys.exit(f"beside {llvm} the PTX is another one")
    print(f"{texts['none'].splitlines()[0]} beside {', '.join(path.name for path in found)}")


if __name__ == "__main__":
    main()
