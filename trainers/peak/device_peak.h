#ifndef RANKWISE_TRAINERS_PEAK_DEVICE_PEAK_H_
#define RANKWISE_TRAINERS_PEAK_DEVICE_PEAK_H_

namespace rankwise {

// Peak rates of one rank's device; 0 if unknown.
struct DevicePeak {
  // In matrix products of one precision, with a multiply-add counted as two.
  double flops_per_second = 0;
  double bytes_per_second = 0;  // between the device and its memory
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PEAK_DEVICE_PEAK_H_
