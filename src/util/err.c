/* SPDX-License-Identifier: MIT */
#include "util/err.h"

#include <stdarg.h>
#include <stdio.h>

/* One per thread, since a constructor that fails has no object to hold it. */
static _Thread_local char last_text[512];

int snt__fail(int err, const char *format, ...)
{
	char text[sizeof(last_text)];
	va_list args;

	/* Formatted aside, because the arguments may be the last text itself. */
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	__builtin_memcpy(last_text, text, sizeof(text));
	return -err;
}

const char *snt_err_text(void)
{
	return last_text;
}
