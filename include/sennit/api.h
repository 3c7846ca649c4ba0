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
 * Option structures begin with their size. SNT_INIT() of the variable, or of its
 * type, sets the size and zeroes the rest. In C members may follow:
 *
 *	struct snt_qp_opts opts = SNT_INIT(opts, .cq = cq, .lanes = 4);
 *
 * In C++ (11 or later) they are assigned afterwards, which is valid C as well:
 *
 *	struct snt_qp_opts opts = SNT_INIT(opts);
 *
 *	opts.cq = cq;
 *	opts.lanes = 4;
 *
 * Zero in any field means its default. A structure from an older header is
 * accepted; one from a newer header is accepted as long as the fields this
 * library does not know are zero, and is -E2BIG otherwise. The library copies
 * what it needs.
 *
 * Structures that the library fills begin with their size as well: SNT_INIT()
 * them, and no more than that many bytes are written. Values that programs keep
 * and pass on, such as tokens, have no size and never grow; where a header says
 * to zero one, that is { 0 } in C and {} in C++.
 *
 * Thread classes. "Thread: any" may be called from every thread at every time.
 * "Thread: loop" means that a loop (loop.h), with all that is in it, belongs to
 * one thread at a time, "owner" that a CQ without a loop does, with its QPs and
 * SRQs; either may move between threads, if the program orders the accesses (a
 * mutex, a queue, pthread_create). docs/threads.md has the rules.
 */

#if defined(__GNUC__)
#define SNT_API __attribute__((visibility("default")))
#else
#define SNT_API
#endif

/* The most devices that one context holds and one token has keys for. */
#define SNT_DEVICES_MAX 32

/*
 * SNT_INIT(what), SNT_INIT(what, .member = value, ...): see above. In C an initialiser in
 * braces, for automatic and static variables; in C++ a value without further members,
 * since compilers warn there of those that are left out (-Wmissing-field-initializers).
 */
#ifdef __cplusplus
extern "C++" {
template <typename T> struct snt__bare {
	typedef T type;
};

template <typename T> struct snt__bare<const T> {
	typedef T type;
};

template <typename T> inline typename snt__bare<T>::type snt__init()
{
	typename snt__bare<T>::type value = typename snt__bare<T>::type();

	value.size = sizeof(value);
	return value;
}
}

#define SNT_INIT(what) snt__init<__typeof__(what)>()
#else
/* The empty argument after the last makes a macro with `...` have one in any case. */
#define SNT_INIT(...)                                                               \
	{                                                                           \
		.size = sizeof(SNT__FIRST(__VA_ARGS__, )), SNT__REST(__VA_ARGS__, ) \
	}
#define SNT__FIRST(first, ...) first
#define SNT__REST(first, ...)  __VA_ARGS__
#endif

#endif
