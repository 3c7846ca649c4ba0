/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_ERROR_H
#define TOOL_PERF_ERROR_H

/* One sentence of what went wrong last, as in the library: the server sends it to the
 * client, who shows it. */
__attribute__((format(printf, 2, 3))) int perf_fail(int err, const char *format, ...);

/* The same of a library call that returned @ret: what was to be done, and its sentence. */
int perf_fail_library(int ret, const char *what);

const char *perf_error_text(void);

#endif
