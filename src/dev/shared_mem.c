/* SPDX-License-Identifier: MIT */
#include "dev/shared_mem.h"

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

#include "util/assert.h"
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
	struct snt__shared_mem **shared;
	size_t room;
	atomic_size_t count; /* changed under the lock */
	uint64_t last_id;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The first that ends after an address. */
static size_t position_after(uintptr_t address)
{
	size_t first = 0, end = all.count;

	while (first < end) {
		size_t middle = first + (end - first) / 2;
		const struct snt__shared_mem *shared = all.shared[middle];

		if ((uintptr_t)shared->bytes + shared->size <= address)
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

static bool make_room_for_one(void)
{
	size_t room = all.room ? 2 * all.room : 8;
	struct snt__shared_mem **more;

	if (all.count < all.room)
		return true;
	more = realloc(all.shared, room * sizeof(*more));
	if (!more)
		return false;
	all.shared = more;
	all.room = room;
	return true;
}

static int list_shared_mem(struct snt__shared_mem *shared)
{
	size_t at;
	int ret = -ENOMEM;

	pthread_mutex_lock(&all.lock);
	if (make_room_for_one()) {
		at = position_after((uintptr_t)shared->bytes);
		/* Sorted by address, and none overlaps another. */
		snt__assert(at == all.count ||
			    shared->bytes + shared->size <= all.shared[at]->bytes);
		memmove(&all.shared[at + 1], &all.shared[at],
			(all.count - at) * sizeof(*all.shared));
		all.shared[at] = shared;
		all.count++;
		shared->id = ++all.last_id;
		ret = 0;
	}
	pthread_mutex_unlock(&all.lock);
	return ret;
}

static void unlist_shared_mem(struct snt__shared_mem *shared)
{
	size_t at;

	pthread_mutex_lock(&all.lock);
	at = position_after((uintptr_t)shared->bytes);
	snt__assert(at < all.count && all.shared[at] == shared);
	all.count--;
	memmove(&all.shared[at], &all.shared[at + 1],
		(all.count - at) * sizeof(*all.shared));
	if (!all.count) {
		free(all.shared);
		all.shared = NULL;
		all.room = 0;
	}
	pthread_mutex_unlock(&all.lock);
}

/*
 * Forks. A child has none of the memory, and may map something else there, which must
 * neither be taken for shared memory nor be unmapped with one.
 */

static void lock_shared_mems(void)
{
	pthread_mutex_lock(&all.lock);
}

static void unlock_shared_mems(void)
{
	pthread_mutex_unlock(&all.lock);
}

static void forget_shared_mems(void)
{
	for (size_t i = 0; i < all.count; i++) {
		struct snt__shared_mem *shared = all.shared[i];

		if (shared->fd >= 0)
			close(shared->fd);
		*shared = (struct snt__shared_mem){ .fd = -1 };
	}
	free(all.shared);
	all.shared = NULL;
	all.room = 0;
	all.count = 0;
	pthread_mutex_unlock(&all.lock);
}

/* Registered before any device's handler: handlers that are registered last run first,
 * and devices look for shared memories while they hold their own locks. */
__attribute__((constructor)) static void watch_forks_of_shared_mems(void)
{
	pthread_atfork(lock_shared_mems, unlock_shared_mems, forget_shared_mems);
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

int snt__shared_mem_file(const char *name, size_t size)
{
	return make_file(name, size, SEALS);
}

/* This process has it mapped for writing, and no other will: a process that gets the fd
 * may only read. */
static void seal_shared_mem(int fd)
{
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
		fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL);
}

/* A child shares no memory with the peers of its parent's devices. */
static int map_shared_mem(struct snt__shared_mem *shared)
{
	int flags = shared->fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;

	shared->bytes =
		mmap(NULL, shared->size, PROT_READ | PROT_WRITE, flags, shared->fd, 0);
	if (shared->bytes == MAP_FAILED)
		return -errno;
	madvise(shared->bytes, shared->size, MADV_DONTFORK);
	if (shared->fd >= 0)
		seal_shared_mem(shared->fd);
	return 0;
}

int snt__shared_mem_make(size_t length, struct snt__shared_mem **shared_out)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct snt__shared_mem *shared;
	int ret;

	if (length > SIZE_MAX / 2)
		return -ENOMEM;
	shared = calloc(1, sizeof(*shared));
	if (!shared)
		return -ENOMEM;
	shared->size = (length + page - 1) & -page;
	shared->fd = make_file("sennit-mem", shared->size, SIZE_SEALS);
	ret = map_shared_mem(shared);
	if (ret)
		goto err_close;
	ret = list_shared_mem(shared);
	if (ret)
		goto err_unmap;
	*shared_out = shared;
	return 0;

err_unmap:
	munmap(shared->bytes, shared->size);
err_close:
	if (shared->fd >= 0)
		close(shared->fd);
	free(shared);
	return ret;
}

void snt__shared_mem_free(struct snt__shared_mem *shared)
{
	if (!shared)
		return;
	if (shared->bytes) {
		unlist_shared_mem(shared);
		munmap(shared->bytes, shared->size);
	}
	if (shared->fd >= 0)
		close(shared->fd);
	free(shared);
}

bool snt__shared_mem_find(const void *bytes, size_t length,
			  struct snt__shared_mem *shared_out)
{
	uintptr_t address = (uintptr_t)bytes;
	bool found = false;
	size_t at;

	if (!atomic_load_explicit(&all.count, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&all.lock);
	at = position_after(address);
	if (at < all.count) {
		const struct snt__shared_mem *shared = all.shared[at];
		uintptr_t begin = (uintptr_t)shared->bytes;

		found = shared->fd >= 0 && begin <= address &&
			length <= begin + shared->size - address;
		*shared_out = *shared;
		shared_out->fd = -1;
	}
	pthread_mutex_unlock(&all.lock);
	return found;
}

int snt__shared_mem_fd(uint64_t id)
{
	int fd = -1;

	pthread_mutex_lock(&all.lock);
	for (size_t i = 0; i < all.count; i++)
		if (all.shared[i]->id == id)
			fd = fcntl(all.shared[i]->fd, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&all.lock);
	return fd;
}

/* A file that is not sealed could be truncated, and huge pages may be missing: both
 * raise SIGBUS. */
size_t snt__shared_mem_size(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs system;
	struct stat stat;

	if (seals < 0 || (seals & SEALS) != SEALS || fstatfs(fd, &system) ||
	    system.f_type != TMPFS_MAGIC || fstat(fd, &stat) || stat.st_size <= 0)
		return 0;
	return (size_t)stat.st_size;
}
