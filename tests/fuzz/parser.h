// The fuzzed parsers, for all files that this repository reads, each with valid
// seed files and with the conditions that every accepted file must satisfy.
#ifndef RANKWISE_TESTS_FUZZ_PARSER_H_
#define RANKWISE_TESTS_FUZZ_PARSER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rankwise::fuzz {

// The parts of a file, which are mutated separately, so that the others stay
// valid.
using Parts = std::vector<std::string>;

struct Verdict {
  absl::Status refused;       // OK if the file was accepted
  std::string nonsense = {};  // violated condition of an accepted file
};

struct Parser {
  absl::string_view name;
  // Returns valid files, written by our own writers in the folder `dir`.
  std::vector<Parts> (*seeds)(const std::string& dir);
  // Writes the file into `dir`, which no other input uses concurrently, and
  // parses it.
  Verdict (*check)(const Parts& parts, const std::string& dir);
  // regular expression for the place that every error must name
  const char* place;
};

// Returns the parsers by name.
const std::vector<Parser>& AllParsers();

// Returns "", or the fault of an error message: it does not name a place, or it
// is not one short line of printable text.
std::string MessageFault(const Parser& parser, const absl::Status& refused);

// Whether the text is safe to print on a terminal: printable, line by line.
bool IsPrintable(absl::string_view text);

// Helpers of the checks.
void WriteFile(const std::string& path, absl::string_view contents);
std::string ReadFile(const std::string& path);

// The entries of AllParsers.
std::vector<Parser> RecordParsers();  // records, and models fitted to them
std::vector<Parser> TextParsers();    // schedules, studies, clusters, traffic
std::vector<Parser> TensorParsers();  // checkpoints, datasets

}  // namespace rankwise::fuzz

#endif  // RANKWISE_TESTS_FUZZ_PARSER_H_
