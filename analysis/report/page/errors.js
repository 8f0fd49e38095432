// Collects the page's errors and warnings for the status that tests read.
'use strict';
const pageErrors = [];
addEventListener('error', (event) => pageErrors.push(event.message));
addEventListener('unhandledrejection', (event) => pageErrors.push(String(event.reason)));
addEventListener(
    'securitypolicyviolation',
    (event) => pageErrors.push(`blocked: ${event.violatedDirective} ${event.blockedURI}`));
for (const level of ['error', 'warn']) {
  const print = console[level];
  console[level] = (...words) => {
    pageErrors.push(words.join(' '));
    print.apply(console, words);
  };
}
