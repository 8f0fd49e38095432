// Times with a known truth, noisy as a machine's are.

#ifndef ANALYSIS_COST_MODEL_SAMPLES_FOR_TEST_H_
#define ANALYSIS_COST_MODEL_SAMPLES_FOR_TEST_H_

#include <random>
#include <string>
#include <vector>

namespace rankwise {

struct NoiseForTest {
  int calls = 40;
  double spread = 0.1;   // of the logarithm of a call's time
  double tail = 0.05;    // share of the calls that take up to 11 times as long
  double deviation = 0;  // of a size's logarithm from the line
};

// `noise.calls` calls whose median is `seconds`, but for a deviation that they
// share.
std::vector<double> CallsForTest(double seconds, const NoiseForTest& noise,
                                 std::mt19937_64& random);

// How often something held in many trials. Prints its share.
class ShareForTest {
 public:
  void Add(bool held);
  double share() const;
  // "alpha of piece 1: 94.8 % of 500"
  std::string ToString(const std::string& what) const;

 private:
  int held_ = 0, trials_ = 0;
};

}  // namespace rankwise

#endif  // ANALYSIS_COST_MODEL_SAMPLES_FOR_TEST_H_
