/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_ERROR_H
#define TOOL_PERF_ERROR_H

/* The text of the last error, as in the library: the server sends it to the client,
 * which shows it. */
__attribute__((format(printf, 2, 3))) int perf_fail(int err, const char *format, ...);

/* The same for a library call that returned @ret: what failed, and the library's
 * sentence. */
int perf_fail_library(int ret, const char *what);

const char *perf_error_text(void);

#endif
