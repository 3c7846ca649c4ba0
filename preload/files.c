/* SPDX-License-Identifier: MIT */
/*
 * Files of the kernel's devices that programs read without using verbs. UCX wants a
 * character device, and the type of each GID from sysfs:
 *
 *	/dev/infiniband/soft0
 *	/sys/class/infiniband/soft0/ports/1/gid_attrs/types/0
 *
 * All other paths are passed to the C library. The names are set in the assembler,
 * because headers may turn `open` into `open64`.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "preload.h"
#include "util/file_limit.h"

#define DEV    "/dev/infiniband/"
#define CLASS  "/sys/class/infiniband/"
#define TYPES  "/ports/1/gid_attrs/types/"
#define ROCE_2 "RoCE v2\n"

typedef int open_function(const char *path, int flags, ...);
typedef int stat_function(const char *path, struct stat *stat_out);
typedef int xstat_function(int version, const char *path, struct stat *stat_out);
typedef int access_function(const char *path, int mode);

open_function snt__preload_open __asm__("open");
open_function snt__preload_open64 __asm__("open64");
stat_function snt__preload_stat __asm__("stat");
stat_function snt__preload_stat64 __asm__("stat64");
xstat_function snt__preload_xstat __asm__("__xstat");
xstat_function snt__preload_xstat64 __asm__("__xstat64");
access_function snt__preload_access __asm__("access");

static struct {
	open_function *open, *open64;
	stat_function *stat, *stat64;
	access_function *access;
} next;

#define NEXT(name) SNT__PRELOAD_NEXT(next.name, #name)

void *snt__preload_next(void **function, const char *name)
{
	void *symbol = __atomic_load_n(function, __ATOMIC_RELAXED);

	if (!symbol) {
		symbol = dlsym(RTLD_NEXT, name);
		__atomic_store_n(function, symbol, __ATOMIC_RELAXED);
	}
	return symbol;
}

__attribute__((constructor)) static void look_up_files(void)
{
	NEXT(open);
	NEXT(open64);
	NEXT(stat);
	NEXT(stat64);
	NEXT(access);
}

const char *snt__preload_behind_name(const char *path, const char *prefix,
				     const struct ibv_device **device_out)
{
	size_t length = strlen(prefix);
	const char *name;

	if (!path || strncmp(path, prefix, length) != 0)
		return NULL;
	name = path + length;
	length = strcspn(name, "/");
	*device_out = snt__preload_find(name, length);
	return *device_out ? name + length : NULL;
}

static bool is_device(const char *path)
{
	const struct ibv_device *device;
	const char *rest = snt__preload_behind_name(path, DEV, &device);

	return rest && !*rest;
}

/* All GIDs of soft devices have the same type; verbs report which GIDs there are. */
static bool is_type(const char *path)
{
	const struct ibv_device *device;
	const char *rest = snt__preload_behind_name(path, CLASS, &device);

	return rest && strncmp(rest, TYPES, strlen(TYPES)) == 0;
}

static int open_text(const char *text)
{
	int fd = memfd_create("sennit", MFD_CLOEXEC);
	struct snt__file_limit limit;
	bool written;

	if (fd < 0)
		return -1;
	snt__file_limit_hold(&limit);
	written = write(fd, text, strlen(text)) == (ssize_t)strlen(text) &&
		  !lseek(fd, 0, SEEK_SET);
	snt__file_limit_release(&limit);
	if (!written) {
		close(fd);
		return -1;
	}
	return fd;
}

#define TAKE_MODE(mode, flags)                           \
	do {                                             \
		va_list args;                            \
                                                         \
		va_start(args, flags);                   \
		if ((flags) & (O_CREAT | __O_TMPFILE))   \
			(mode) = va_arg(args, unsigned); \
		va_end(args);                            \
	} while (0)

int snt__preload_open(const char *path, int flags, ...)
{
	unsigned mode = 0;

	TAKE_MODE(mode, flags);
	if (is_type(path))
		return open_text(ROCE_2);
	return NEXT(open)(path, flags, mode);
}

int snt__preload_open64(const char *path, int flags, ...)
{
	unsigned mode = 0;

	TAKE_MODE(mode, flags);
	if (is_type(path))
		return open_text(ROCE_2);
	return NEXT(open64)(path, flags, mode);
}

int snt__preload_stat(const char *path, struct stat *stat_out)
{
	return NEXT(stat)(is_device(path) ? "/dev/null" : path, stat_out);
}

int snt__preload_stat64(const char *path, struct stat *stat_out)
{
	return NEXT(stat64)(is_device(path) ? "/dev/null" : path, stat_out);
}

/*
 * Programs built for a C library before 2.33, as those for many distributions are, call these
 * instead. The versions of the structure are one, but for its number.
 */

#define STAT_VERSION_MAX 1

int snt__preload_xstat(int version, const char *path, struct stat *stat_out)
{
	if (version >= 0 && version <= STAT_VERSION_MAX)
		return snt__preload_stat(path, stat_out);
	errno = EINVAL;
	return -1;
}

int snt__preload_xstat64(int version, const char *path, struct stat *stat_out)
{
	return snt__preload_xstat(version, path, stat_out);
}

int snt__preload_access(const char *path, int mode)
{
	return NEXT(access)(is_device(path) ? "/dev/null" : path, mode);
}
