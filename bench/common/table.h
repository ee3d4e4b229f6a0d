// Owns the two forms of a table of texts: aligned Markdown and CSV.
#pragma once

#include <string>
#include <vector>

namespace lathe::bench {

struct Column {
  std::string name;
  bool number = false;  // to the right in Markdown
};

// Every row has a cell for each column.
struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;

  std::string markdown() const;
  std::string csv() const;
};

}  // namespace lathe::bench
