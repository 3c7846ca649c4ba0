/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_VERBS_ERR_H
#define SNT_DEV_VERBS_ERR_H

#include <errno.h>

/*
 * Verbs calls report failure in four ways: NULL and errno, -1 and errno, a positive
 * errno, a negative errno. Only this header deals with that. Some old providers fail
 * without setting errno; those failures become -EIO.
 */

static inline int verbs_errno(void)
{
	return errno ? -errno : -EIO;
}

static inline int verbs_int(int ret)
{
	if (!ret)
		return 0;
	if (ret == -1)
		return verbs_errno();
	return ret > 0 ? -ret : ret;
}

/* For calls that return an int with any of the three conventions. */
#define FROM_INT(call)           \
	({                       \
		errno = 0;       \
		verbs_int(call); \
	})

/* For calls that return a new object; writes *(out) only on success. */
#define FROM_POINTER(out, call)             \
	({                                  \
		errno = 0;                  \
		__auto_type made_ = (call); \
		if (made_)                  \
			*(out) = made_;     \
		made_ ? 0 : verbs_errno();  \
	})

#endif
