/* SPDX-License-Identifier: MIT */
#include "perf_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <sennit/err.h>

static char last[512];

int perf_fail(int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(last, sizeof(last), format, args);
	va_end(args);
	return -err;
}

int perf_fail_library(int ret, const char *what)
{
	return perf_fail(-ret, "%s: %s", what, snt_err_text());
}

const char *perf_error_text(void)
{
	return last;
}
