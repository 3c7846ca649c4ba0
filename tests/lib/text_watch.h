/* SPDX-License-Identifier: MIT */
#ifndef TEXT_WATCH_H
#define TEXT_WATCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/err.h"

/*
 * The rule of <sennit/err.h>, checked at every call that a test makes: a call that fails
 * leaves a sentence of its own, never that of a call before it. The build includes this file
 * in all tests that are linked with internal functions, with a macro for each public function
 * that can fail (text_watch.py).
 */

#define TEXT_WATCH_STALE "the sentence of an earlier call"

static inline void text_watch_begin(struct snt__err_kept *before)
{
	snt__err_keep(before);
	snt__err_restore(&(struct snt__err_kept){ .text = TEXT_WATCH_STALE });
}

/* Calls that succeed leave the sentence alone, or one of something that failed on the way. */
static inline void text_watch_end(const struct snt__err_kept *before, const char *call,
				  long long result)
{
	if (strcmp(snt_err_text(), TEXT_WATCH_STALE) != 0)
		return;
	snt__err_restore(before);
	if (result >= 0)
		return;
	fprintf(stderr,
		"%s() returned %lld (%s) and left no sentence in snt_err_text()\n",
		call, result, strerror((int)-result));
	abort();
}

#define TEXT_WATCH(name, call)                           \
	({                                               \
		struct snt__err_kept before_;            \
		text_watch_begin(&before_);              \
		__auto_type result_ = (call);            \
		text_watch_end(&before_, name, result_); \
		result_;                                 \
	})

#endif
