// Owns the alignment, and the characters that would end a cell too early.
#include "bench/common/table.h"

#include <algorithm>
#include <string_view>

namespace lathe::bench {

namespace {

// Columns on a terminal, of text without wide characters: bytes that do not continue a character.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t to, bool right) {
  const std::string space(to - std::min(to, width(text)), ' ');
  return right ? space + text : text + space;
}

std::string markdown_cell(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) line += (&cell == &cells.front() ? "" : ",") + cell;
  return line + "\n";
}

}  // namespace

std::string Table::markdown() const {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : columns) lines.front().push_back(markdown_cell(column.name));
  for (const std::vector<std::string>& row : rows) {
    std::vector<std::string>& line = lines.emplace_back();
    for (const std::string& cell : row) line.push_back(markdown_cell(cell));
  }
  std::vector<std::size_t> widths(columns.size(), 3);  // room for "--:"
  for (const std::vector<std::string>& line : lines) {
    for (std::size_t i = 0; i < columns.size(); ++i)
      widths[i] = std::max(widths[i], width(line[i]));
  }
  std::string text;
  for (const std::vector<std::string>& line : lines) {
    for (std::size_t i = 0; i < columns.size(); ++i)
      text += (i == 0 ? "| " : " | ") + padded(line[i], widths[i], columns[i].number);
    text += " |\n";
    if (&line != &lines.front()) continue;
    for (std::size_t i = 0; i < columns.size(); ++i)
      text += (i == 0 ? "| " : " | ") + std::string(widths[i] - 1, '-') +
              (columns[i].number ? ":" : "-");
    text += " |\n";
  }
  return text;
}

std::string Table::csv() const {
  std::vector<std::string> cells;
  for (const Column& column : columns) cells.push_back(csv_cell(column.name));
  std::string text = csv_line(cells);
  for (const std::vector<std::string>& row : rows) {
    cells.clear();
    for (const std::string& cell : row) cells.push_back(csv_cell(cell));
    text += csv_line(cells);
  }
  return text;
}

}  // namespace lathe::bench
