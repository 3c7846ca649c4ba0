/* SPDX-License-Identifier: MIT */
#include "util/err.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* One per thread, since a constructor that fails has no object to hold it. */
static _Thread_local struct {
	char text[SNT__ERR_TEXT_MAX];
	/* Not NULL: the text is formatted from this when it is read. */
	const char *format;
	unsigned number[2];
} last;

int snt__fail(int err, const char *format, ...)
{
	char text[sizeof(last.text)];
	va_list args;

	/* Formatted into a separate buffer, because the arguments may include the last
	 * text. */
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	memcpy(last.text, text, sizeof(text));
	last.format = NULL;
	return -err;
}

int snt__fail_later(int err, const char *format, unsigned first, unsigned second)
{
	last.format = format;
	last.number[0] = first;
	last.number[1] = second;
	return -err;
}

void snt__err_keep(struct snt__err_kept *kept)
{
	memcpy(kept->text, snt_err_text(), sizeof(kept->text));
}

void snt__err_restore(const struct snt__err_kept *kept)
{
	memcpy(last.text, kept->text, sizeof(last.text));
	last.format = NULL;
}

const char *snt_err_text(void)
{
	if (last.format) {
		snprintf(last.text, sizeof(last.text), last.format, last.number[0],
			 last.number[1]);
		last.format = NULL;
	}
	return last.text;
}
