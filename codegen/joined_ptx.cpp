// Owns the reading of PTX by its top level items, and their new order.
#include "codegen/joined_ptx.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace lathe {
namespace {

constexpr std::string_view kExternal = ".extern .func ";

// A declaration or a definition, with the end of its last line.
struct Item {
  std::string_view text;
  std::string_view name;
  bool entry = false;
  bool variable = false;
  bool defined = false;  // with a body
};

// The name in the first line of an item. What a function returns stands before it.
std::string_view name_in(std::string_view line, const Item& item) {
  if (item.variable) {
    line = line.substr(0, line.find_first_of("=[;"));
    while (line.ends_with(' ')) line.remove_suffix(1);
    return line.substr(line.rfind(' ') + 1);
  }
  const std::string_view word = item.entry ? ".entry " : ".func ";
  line.remove_prefix(line.find(word) + word.size());
  while (line.starts_with(' ')) line.remove_prefix(1);
  if (line.starts_with('(')) line.remove_prefix(std::min(line.find(") "), line.size() - 2) + 2);
  return line.substr(0, line.find_first_of("(; "));
}

// Lines outside of items belong to none: comments, and the directives of the whole text.
bool begins_item(std::string_view line) {
  return line.starts_with('.') && !line.starts_with(".version") && !line.starts_with(".target") &&
         !line.starts_with(".address_size");
}

// An item without what stands before its name: a function may be known to others in one text only.
std::string_view behind_name(const Item& item) {
  return item.text.substr(item.text.find(item.name));
}

std::vector<Item> items_of(std::string_view ptx) {
  std::vector<Item> items;
  bool open = false;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < ptx.size();) {
    const std::size_t end = std::min(ptx.find('\n', at), ptx.size() - 1) + 1;
    const std::string_view line = ptx.substr(at, end - at - 1);
    if (!open && begins_item(line)) {
      open = true;
      begin = at;
      Item item;
      item.entry = line.find(".entry ") != std::string_view::npos;
      item.variable = !item.entry && line.find(".func ") == std::string_view::npos;
      item.name = name_in(line, item);
      items.push_back(item);
    }
    if (open && line.starts_with('{')) items.back().defined = true;
    if (open && (items.back().defined ? line.starts_with('}') : line.ends_with(';'))) {
      items.back().text = ptx.substr(begin, end - begin);
      open = false;
    }
    at = end;
  }
  if (open) items.pop_back();
  return items;
}

}  // namespace

Result<std::string> joined_ptx(const std::string& kernel, const std::string& functions) {
  const std::vector<Item> ours = items_of(kernel), theirs = items_of(functions);
  // Of our own, what is said of the name and not only asked for.
  const auto known = [&](const Item& item) {
    return std::ranges::find_if(ours, [&](const Item& own) {
      return own.name == item.name && (own.defined || !item.defined);
    });
  };
  std::string declared, defined;
  for (const Item& item : theirs) {
    if (item.entry) continue;
    if (const auto own = known(item); own != ours.end()) {
      if (!item.defined && !item.variable) continue;
      if (behind_name(*own) == behind_name(item)) continue;
      return Error{Code::compile,
                   fmt::format("Two parts of a kernel define {} differently.", item.name),
                   {}};
    }
    (item.defined ? defined : declared).append(item.text);
  }
  std::string out;
  std::size_t copied = 0;
  const auto copy_to = [&](const Item& item) {
    const auto at = static_cast<std::size_t>(item.text.data() - kernel.data());
    out.append(kernel, copied, at - copied);
    copied = at;
  };
  for (const Item& item : ours) {
    if (item.entry) {
      copy_to(item);
      out.append(std::exchange(declared, {}));
    }
    if (!item.text.starts_with(kExternal)) continue;
    if (std::ranges::none_of(theirs,
                             [&](const Item& of) { return of.defined && of.name == item.name; }))
      return Error{Code::compile,
                   fmt::format("A kernel calls {}, which no part of it defines.", item.name),
                   {}};
    copy_to(item);
    out += ".func ";
    copied += kExternal.size();
  }
  out.append(kernel, copied);
  if (out.ends_with("\n\n")) out.pop_back();
  return out.append(defined) += '\n';
}

}  // namespace lathe
