/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_API_H
#define SENNIT_API_H

/*
 * What every public header builds on: the mark of an exported function, the
 * limits that size public structures, and the words used in the manual parts
 * of all headers.
 *
 * Return values. `int` is 0 or a negative errno, `ssize_t` is a count or a
 * negative errno. Constructors take their out pointer last and write it only
 * on success. After a failure snt_err_text() has a sentence that names the
 * thing and what to do (err.h).
 *
 * Option structures begin with their size. Fill them as
 *
 *	struct snt_ctx_opts opts = { .size = sizeof(opts) };
 *
 * Zero in any field means its default. A structure from an older header is
 * accepted; one from a newer header is accepted as long as the fields this
 * library does not know are zero, and is -E2BIG otherwise. The library copies
 * what it needs.
 *
 * Structures that the library fills begin with their size as well: set it, and
 * no more than that many bytes are written. Values that programs keep and pass
 * on, such as tokens, have no size and never grow.
 *
 * Thread classes. "Thread: any" may be called from every thread at every time.
 * "Thread: owner" means that the context, with all that was made from it,
 * belongs to one thread at a time; it may move between threads, if the program
 * orders the accesses (a mutex, a queue, pthread_create).
 */

#if defined(__GNUC__)
#define SNT_API __attribute__((visibility("default")))
#else
#define SNT_API
#endif

/* The most devices that one context holds and one token has keys for. */
#define SNT_DEVICES_MAX 32

#endif
