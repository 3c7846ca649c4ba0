/* SPDX-License-Identifier: MIT */
#include "dev/place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "util/file_limit.h"

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define SEALS	   (SIZE_SEALS | F_SEAL_SEAL)

/* Since Linux 5.1. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x10
#endif

/* Since Linux 6.3; a host can require it (vm.memfd_noexec). */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

/* In the order of their addresses. */
static struct {
	pthread_mutex_t lock;
	struct snt__place **place;
	size_t room;
	atomic_size_t count; /* changed under the lock */
	uint64_t last_id;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The first place that ends after an address. */
static size_t position(uintptr_t address)
{
	size_t first = 0, end = all.count;

	while (first < end) {
		size_t middle = first + (end - first) / 2;
		const struct snt__place *place = all.place[middle];

		if ((uintptr_t)place->bytes + place->size <= address)
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

static bool grow(void)
{
	size_t room = all.room ? 2 * all.room : 8;
	struct snt__place **more;

	if (all.count < all.room)
		return true;
	more = realloc(all.place, room * sizeof(*more));
	if (!more)
		return false;
	all.place = more;
	all.room = room;
	return true;
}

static int enter(struct snt__place *place)
{
	size_t at;
	int ret = -ENOMEM;

	pthread_mutex_lock(&all.lock);
	if (grow()) {
		at = position((uintptr_t)place->bytes);
		memmove(&all.place[at + 1], &all.place[at],
			(all.count - at) * sizeof(*all.place));
		all.place[at] = place;
		all.count++;
		place->id = ++all.last_id;
		ret = 0;
	}
	pthread_mutex_unlock(&all.lock);
	return ret;
}

static void leave(struct snt__place *place)
{
	size_t at;

	pthread_mutex_lock(&all.lock);
	at = position((uintptr_t)place->bytes);
	all.count--;
	memmove(&all.place[at], &all.place[at + 1],
		(all.count - at) * sizeof(*all.place));
	if (!all.count) {
		free(all.place);
		all.place = NULL;
		all.room = 0;
	}
	pthread_mutex_unlock(&all.lock);
}

/*
 * Forks. A child has none of the memory, and may map something else there, which must
 * neither be taken for a place nor be unmapped with one.
 */

static void before_fork(void)
{
	pthread_mutex_lock(&all.lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&all.lock);
}

static void in_child(void)
{
	for (size_t i = 0; i < all.count; i++) {
		struct snt__place *place = all.place[i];

		if (place->fd >= 0)
			close(place->fd);
		*place = (struct snt__place){ .fd = -1 };
	}
	free(all.place);
	all.place = NULL;
	all.room = 0;
	all.count = 0;
	pthread_mutex_unlock(&all.lock);
}

/* Registered before any device's handler: handlers that are registered last run first,
 * and devices look for places while they hold their own locks. */
__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}

/*
 * Creating and freeing
 */

static int open_file(const char *name)
{
	const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);

	return fd < 0 && errno == EINVAL ? memfd_create(name, flags) : fd;
}

static int set_size(int fd, size_t size)
{
	struct snt__file_limit limit;
	int ret;

	snt__file_limit_hold(&limit);
	ret = ftruncate(fd, (off_t)size);
	snt__file_limit_release(&limit);
	return ret;
}

static int make_file(const char *name, size_t size, int seals)
{
	int fd = open_file(name), error;

	if (fd >= 0 && (set_size(fd, size) || fcntl(fd, F_ADD_SEALS, seals))) {
		error = errno;
		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

int snt__place_file(const char *name, size_t size)
{
	return make_file(name, size, SEALS);
}

/* This process has it mapped for writing, and no other will: a process that gets the fd
 * may only read. */
static void seal(int fd)
{
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
		fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL);
}

/* A child shares no memory with the peers of its parent's devices. */
static int map(struct snt__place *place)
{
	int flags = place->fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;

	place->bytes =
		mmap(NULL, place->size, PROT_READ | PROT_WRITE, flags, place->fd, 0);
	if (place->bytes == MAP_FAILED)
		return -errno;
	madvise(place->bytes, place->size, MADV_DONTFORK);
	if (place->fd >= 0)
		seal(place->fd);
	return 0;
}

int snt__place_make(size_t length, struct snt__place **place_out)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct snt__place *place;
	int ret;

	if (length > SIZE_MAX / 2)
		return -ENOMEM;
	place = calloc(1, sizeof(*place));
	if (!place)
		return -ENOMEM;
	place->size = (length + page - 1) & -page;
	place->fd = make_file("sennit-mem", place->size, SIZE_SEALS);
	ret = map(place);
	if (ret)
		goto err_close;
	ret = enter(place);
	if (ret)
		goto err_unmap;
	*place_out = place;
	return 0;

err_unmap:
	munmap(place->bytes, place->size);
err_close:
	if (place->fd >= 0)
		close(place->fd);
	free(place);
	return ret;
}

void snt__place_free(struct snt__place *place)
{
	if (!place)
		return;
	if (place->bytes) {
		leave(place);
		munmap(place->bytes, place->size);
	}
	if (place->fd >= 0)
		close(place->fd);
	free(place);
}

bool snt__place_find(const void *bytes, size_t length, struct snt__place *place_out)
{
	uintptr_t address = (uintptr_t)bytes;
	bool found = false;
	size_t at;

	if (!atomic_load_explicit(&all.count, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&all.lock);
	at = position(address);
	if (at < all.count) {
		const struct snt__place *place = all.place[at];
		uintptr_t begin = (uintptr_t)place->bytes;

		found = place->fd >= 0 && begin <= address &&
			length <= begin + place->size - address;
		*place_out = *place;
		place_out->fd = -1;
	}
	pthread_mutex_unlock(&all.lock);
	return found;
}

int snt__place_fd(uint64_t id)
{
	int fd = -1;

	pthread_mutex_lock(&all.lock);
	for (size_t i = 0; i < all.count; i++)
		if (all.place[i]->id == id)
			fd = fcntl(all.place[i]->fd, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&all.lock);
	return fd;
}

/* A file that is not sealed could be truncated, and huge pages may be missing: both
 * raise SIGBUS. */
size_t snt__place_size(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs system;
	struct stat stat;

	if (seals < 0 || (seals & SEALS) != SEALS || fstatfs(fd, &system) ||
	    system.f_type != TMPFS_MAGIC || fstat(fd, &stat) || stat.st_size <= 0)
		return 0;
	return (size_t)stat.st_size;
}
