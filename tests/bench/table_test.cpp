// Holds tables to their exact text.
#include "bench/common/table.h"

#include <gtest/gtest.h>

namespace lathe::bench {
namespace {

TEST(Table, MarkdownIsAlignedAsItsCharactersShow) {
  const Table table{{{"model"}, {"tokens/s", true}},
                    {{"a", "1.00 ± 0.10"}, {"longer name", "100.00 ± 2.00"}}};
  EXPECT_EQ(table.markdown(),
            "| model       |      tokens/s |\n"
            "| ----------- | ------------: |\n"
            "| a           |   1.00 ± 0.10 |\n"
            "| longer name | 100.00 ± 2.00 |\n");
}

TEST(Table, MarkdownCellsCannotEndTheirColumn) {
  const Table table{{{"a"}}, {{"x|y\nz"}}};
  EXPECT_EQ(table.markdown(),
            "| a      |\n"
            "| ------ |\n"
            "| x\\|y z |\n");
}

TEST(Table, CsvQuotesWhatItMust) {
  const Table table{{{"name"}, {"value"}}, {{"", "1"}, {"a,b", "say \"x\""}, {"two\nlines", ""}}};
  EXPECT_EQ(table.csv(),
            "name,value\n"
            ",1\n"
            "\"a,b\",\"say \"\"x\"\"\"\n"
            "\"two\nlines\",\n");
}

}  // namespace
}  // namespace lathe::bench
