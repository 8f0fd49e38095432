#ifndef RANKWISE_TRAINERS_PEAK_DEVICE_PEAK_H_
#define RANKWISE_TRAINERS_PEAK_DEVICE_PEAK_H_

namespace rankwise {

// What one rank's device can do at most; 0: not known.
struct DevicePeak {
  // In matrix products of one precision, a multiply-add counted as two.
  double flops_per_second = 0;
  double bytes_per_second = 0;  // between the device and its memory
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PEAK_DEVICE_PEAK_H_
