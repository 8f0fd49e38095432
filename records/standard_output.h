// The standard streams of a program: what it prints arrives, or it fails.
#ifndef RANKWISE_RECORDS_STANDARD_OUTPUT_H_
#define RANKWISE_RECORDS_STANDARD_OUTPUT_H_

namespace rankwise {

// Makes lost output a failure: if something that was written to the standard
// output could not be stored (a full disk, a closed descriptor), the process
// ends with one line on stderr, and with kFailed where it would end with 0.
// Standard streams that are closed are replaced by ones that refuse output, so
// that no file that is opened later takes their numbers. Call it first in
// main(), before files are opened; ParseFlags() does. Later calls do nothing.
void CheckStandardOutputAtExit();

// Writes out what is buffered. Returns the exit code of a process that would
// end with `exit_code`; see above. For processes that end by _exit().
int FinishStandardOutput(int exit_code);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_STANDARD_OUTPUT_H_
