// The files of page/, as the build puts them into the binary.
#ifndef RANKWISE_ANALYSIS_REPORT_PAGE_FILES_H_
#define RANKWISE_ANALYSIS_REPORT_PAGE_FILES_H_

namespace rankwise {

extern const char kPageHtml[];    // with {{title}}, {{css}}, {{data}}, ...
extern const char kPageCss[];     // goes to {{css}}
extern const char kPageErrors[];  // to {{errors}}: runs before all else
extern const char kPageJs[];      // to {{js}}: every other script

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_REPORT_PAGE_FILES_H_
