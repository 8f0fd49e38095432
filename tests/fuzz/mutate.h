// Mutated copies of valid files, by a seeded generator: changes of bytes,
// lines, numbers and JSON values, like those of damage, typing errors and other
// programs.
#ifndef RANKWISE_TESTS_FUZZ_MUTATE_H_
#define RANKWISE_TESTS_FUZZ_MUTATE_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace rankwise::fuzz {

class Mutator {
 public:
  // Equal arguments yield equal mutations, so that input `number` of a run with
  // `seed` can be reproduced.
  Mutator(uint64_t seed, uint64_t number);

  // Returns a number from 0 to bound - 1; 0 if bound is 0.
  size_t Below(size_t bound);

  // Returns `text` after 1 to 8 changes, of at most kLargest bytes. Some
  // changes insert pieces of `others`, which are files of the same kind.
  std::string Mutate(std::string text, const std::vector<std::string>& others);

  static constexpr size_t kLargest = 1 << 20;

 private:
  void MutateOnce(std::string& text, const std::vector<std::string>& others);
  void ChangeBytes(std::string& text);
  void ChangeRange(std::string& text);
  void ChangeLines(std::string& text);
  void ChangeToken(std::string& text, const std::vector<std::string>& others);
  void ChangeValue(std::string& text);
  void Nest(std::string& text);
  void Splice(std::string& text, const std::string& other);

  std::mt19937_64 random_;
};

}  // namespace rankwise::fuzz

#endif  // RANKWISE_TESTS_FUZZ_MUTATE_H_
