/* SPDX-License-Identifier: MIT */
#include "util/log.h"

#include <stdarg.h>
#include <stdio.h>

void snt__log(const struct snt__log *log, enum snt_log_level level, const char *format,
	      ...)
{
	char text[512];
	va_list args;

	if (!log->fn || level > log->level)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log->fn(log->arg, level, text);
}

void snt__log_stderr(void *arg, enum snt_log_level level, const char *text)
{
	static const char *const names[] = {
		[SNT_LOG_ERROR] = "error",
		[SNT_LOG_WARN] = "warning",
		[SNT_LOG_INFO] = "info",
		[SNT_LOG_DEBUG] = "debug",
	};

	(void)arg;
	fprintf(stderr, "sennit: %s: %s\n", names[level], text);
}
