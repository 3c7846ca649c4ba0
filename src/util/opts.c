/* SPDX-License-Identifier: MIT */
#include "util/opts.h"

#include <errno.h>
#include <string.h>

#include "util/err.h"

/* A size above this is not that of a newer version but a mistake. */
#define SIZE_STATED_MAX 4096

static size_t stated_size(const void *user)
{
	size_t size;

	memcpy(&size, user, sizeof(size));
	return size;
}

static int check_tail(const unsigned char *user, size_t from, size_t to,
		      const char *what)
{
	for (size_t i = from; i < to; i++)
		if (user[i])
			return snt__fail(
				E2BIG,
				"%s has a field set at byte %zu, which this "
				"library (%zu bytes) does not know; it needs a "
				"newer libsennit",
				what, i, from);
	return 0;
}

int snt__opts_import(void *ours, size_t size, const void *user, const char *what)
{
	size_t user_size = user ? stated_size(user) : 0;
	int ret;

	if (user && user_size < sizeof(size_t))
		return snt__fail(EINVAL, "%s: set .size to the size of the structure",
				 what);
	if (user_size > SIZE_STATED_MAX)
		return snt__fail(
			E2BIG,
			"%s states a size of %zu bytes, more than any version has",
			what, user_size);
	if (user_size > size) {
		ret = check_tail(user, size, user_size, what);
		if (ret)
			return ret;
		user_size = size;
	}
	memset(ours, 0, size);
	if (user)
		memcpy(ours, user, user_size);
	memcpy(ours, &size, sizeof(size));
	return 0;
}

int snt__info_export(void *user, const void *ours, size_t size, const char *what)
{
	size_t user_size = stated_size(user);

	if (user_size < 2 * sizeof(size_t))
		return snt__fail(EINVAL, "%s: set .size to the size of the structure",
				 what);
	memcpy((char *)user + sizeof(size_t), (const char *)ours + sizeof(size_t),
	       (user_size < size ? user_size : size) - sizeof(size_t));
	return 0;
}
