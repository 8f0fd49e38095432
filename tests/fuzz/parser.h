// What is fuzzed: the parsers of everything that this repository reads from
// files, each with valid files to begin with and with what must hold of every
// file that it accepts.
#ifndef RANKWISE_TESTS_FUZZ_PARSER_H_
#define RANKWISE_TESTS_FUZZ_PARSER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rankwise::fuzz {

// A file by its parts, each of which is mutated by itself, so that the others
// stay whole.
using Parts = std::vector<std::string>;

struct Verdict {
  absl::Status refused;       // OK: the file was accepted
  std::string nonsense = {};  // what does not hold of what was accepted
};

struct Parser {
  absl::string_view name;
  // Valid files, as our own writers make them in the folder `dir`.
  std::vector<Parts> (*seeds)(const std::string& dir);
  // Writes the file into `dir`, which no other input uses at the same time, and
  // parses it.
  Verdict (*check)(const Parts& parts, const std::string& dir);
  // A regular expression for the place that every message of a refusal names.
  const char* place;
};

// By name.
const std::vector<Parser>& AllParsers();

// What is wrong with the message of a refusal: it names no place, or it is not
// one short line of printable text. "" where nothing is.
std::string MessageFault(const Parser& parser, const absl::Status& refused);

// A text that may be shown on a terminal: printable, line by line.
bool IsPrintable(absl::string_view text);

// For the checks.
void WriteFile(const std::string& path, absl::string_view contents);
std::string ReadFile(const std::string& path);

// The entries of AllParsers.
std::vector<Parser> RecordParsers();  // records and what is fitted to them
std::vector<Parser> TextParsers();    // schedules, studies, clusters, traffic
std::vector<Parser> TensorParsers();  // checkpoints, datasets

}  // namespace rankwise::fuzz

#endif  // RANKWISE_TESTS_FUZZ_PARSER_H_
