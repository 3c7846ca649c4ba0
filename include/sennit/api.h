/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_API_H
#define SENNIT_API_H

/*
 * What every public header builds on: the export macro, the limits that size public
 * structures, and the conventions that the comments of all headers use.
 *
 * Return values. `int` is 0 or a negative errno, `ssize_t` is a count or a
 * negative errno. Constructors take their out pointer last and write it only
 * on success. After a failure snt_err_text() returns a sentence that names the object
 * and the remedy (err.h). In the code at the beginning of headers, check() and show()
 * are the program's own: check() handles negative values and returns the others.
 *
 * Option structures begin with their size. SNT_INIT() of the variable, or of its
 * type, sets the size and zeroes the rest. In C, initialisers for other members may
 * follow:
 *
 *	struct snt_qp_opts opts = SNT_INIT(opts, .cq = cq, .lanes = 4);
 *
 * In C++ (11 or later) members are assigned afterwards, which is valid C as well:
 *
 *	struct snt_qp_opts opts = SNT_INIT(opts);
 *
 *	opts.cq = cq;
 *	opts.lanes = 4;
 *
 * Zero in any field means its default. A structure from an older header is
 * accepted; one from a newer header is accepted if the fields unknown to this library
 * are zero, and fails with -E2BIG otherwise. The library copies what it needs.
 *
 * Structures that the library fills begin with their size as well: initialise them with
 * SNT_INIT(); the library writes at most that many bytes. Values that programs keep and
 * pass on, such as tokens, have no size member and never grow.
 *
 * Structures that the program allocates and the library works in (struct snt_op, snt_timer
 * and the like) have no size member either, but reserved space at their end, so that they
 * keep their size when the library needs more. They are zeroed before their first use,
 * by { 0 } in C and {} in C++ or by memset(3), and not between uses.
 *
 * Thread classes. "Thread: any" may be called from any thread at any time. "Thread:
 * loop" means that a loop (loop.h), with everything in it, is used by one thread at a
 * time; "owner" means the same of a CQ without a loop, with its QPs and SRQs. Either
 * may move between threads if the program orders the accesses (a mutex, a queue,
 * pthread_create). docs/use/threads.md has the rules.
 */

#if defined(__GNUC__)
#define SNT_API __attribute__((visibility("default")))
#else
#define SNT_API
#endif

/* The version of these headers. SNT_VERSION is a number for comparisons, one byte for
 * each part: version 1.2.3 is 0x010203. */
#define SNT_VERSION_MAJOR 0
#define SNT_VERSION_MINOR 1
#define SNT_VERSION_PATCH 0
#define SNT_VERSION_TEXT  "0.1.0"
#define SNT_VERSION \
	(SNT_VERSION_MAJOR << 16 | SNT_VERSION_MINOR << 8 | SNT_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/**
 * snt_version - get the version of the library that the program runs with
 *
 * Thread: any.
 * Returns: the SNT_VERSION of its headers.
 */
SNT_API unsigned snt_version(void);

#ifdef __cplusplus
}
#endif

/* Maximum number of devices in a context, and of keys in a token. */
#define SNT_DEVICES_MAX 32

/*
 * SNT_INIT(what), SNT_INIT(what, .member = value, ...): see above. In C it is an
 * initialiser in braces, for automatic and static variables; in C++ it is a value and
 * takes no members, since C++ compilers warn about omitted ones
 * (-Wmissing-field-initializers).
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
/* The trailing empty argument gives a macro with `...` at least one argument for it. */
#define SNT_INIT(...)                                                               \
	{                                                                           \
		.size = sizeof(SNT__FIRST(__VA_ARGS__, )), SNT__REST(__VA_ARGS__, ) \
	}
#define SNT__FIRST(first, ...) first
#define SNT__REST(first, ...)  __VA_ARGS__
#endif

#endif
