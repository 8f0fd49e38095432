#include <iostream>

#include "analysis/plan/published.h"
int main(int argc, char** argv) {
  const auto tables = rankwise::plan::Published(argc > 1 ? argv[1] : "");
  if (!tables.ok()) {
    std::cerr << tables.status().message() << "\n";
    return 1;
  }
  for (const auto& t : *tables)
    std::cout << rankwise::plan::PublishedText(t) << "\n";
}
