/* SPDX-License-Identifier: MIT */
#include "util/err.h"

#include <stdarg.h>
#include <stdio.h>

/* One per thread, since a constructor that fails has no object to hold it. */
static _Thread_local char last_text[SNT__ERR_TEXT_MAX];

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

void snt__err_keep(struct snt__err_kept *kept)
{
	__builtin_memcpy(kept->text, last_text, sizeof(last_text));
}

void snt__err_restore(const struct snt__err_kept *kept)
{
	__builtin_memcpy(last_text, kept->text, sizeof(last_text));
}

const char *snt_err_text(void)
{
	return last_text;
}
