/* SPDX-License-Identifier: MIT */
#ifndef SNT_UTIL_ERR_H
#define SNT_UTIL_ERR_H

#include <sennit/err.h>

/*
 * Stores the sentence for snt_err_text() and returns -err, so that a failing
 * path is one line:
 *
 *	return snt__fail(EINVAL, "port %u of %s ...", port, name);
 *
 * The sentence names the thing and what to do; it ends without a full stop,
 * since callers embed it in their own.
 */
int snt__fail(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * The same for failures that a program meets on its data path, such as a full queue: the
 * sentence is formatted when it is read. @format is static, and its only conversions are
 * at most two %u.
 */
int snt__fail_later(int err, const char *format, unsigned first, unsigned second);

#define SNT__ERR_TEXT_MAX 512

/* For undoing, which may fail as well: keeps the sentence of the first failure, which
 * is the one to report. */
struct snt__err_kept {
	char text[SNT__ERR_TEXT_MAX];
};

void snt__err_keep(struct snt__err_kept *kept);
void snt__err_restore(const struct snt__err_kept *kept);

#endif
