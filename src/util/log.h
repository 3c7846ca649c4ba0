/* SPDX-License-Identifier: MIT */
#ifndef SNT_UTIL_LOG_H
#define SNT_UTIL_LOG_H

#include <sennit/ctx.h>

/* Where a context's messages go. With a NULL function there are none. */
struct snt__log {
	snt_log_fn fn;
	void *arg;
	enum snt_log_level level;
};

void snt__log(const struct snt__log *log, enum snt_log_level level, const char *format,
	      ...) __attribute__((format(printf, 3, 4)));

/* For SENNIT_LOG in programs that gave no function. */
void snt__log_stderr(void *arg, enum snt_log_level level, const char *text);

#endif
