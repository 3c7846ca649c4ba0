/* SPDX-License-Identifier: MIT */
/*
 * To be preloaded: watches what a program leaves to the disk, and says it in the file
 * DISK_WATCH, a line for each event.
 *
 *	rename NAME synced|unsynced     of a file whose bytes are on disk, or not
 *	sync FOLDERS                    how many folders have names that are not, after it
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEEN_MAX 65536

/* Inodes that were changed, and when; 0: since then synchronised. */
static struct {
	ino_t inode;
	bool is_folder;
	uint64_t changed;
} seen[SEEN_MAX];
static size_t seen_count;
static uint64_t now;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void say(const char *format, ...)
{
	static int log = -1;
	char line[512];
	va_list args;
	int length;

	if (log < 0 && getenv("DISK_WATCH"))
		log = open(getenv("DISK_WATCH"),
			   O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	va_start(args, format);
	length = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (log >= 0 && write(log, line, (size_t)length) != length)
		abort();
}

/* The newest entries first: they are asked for most. */
static size_t find_inode(ino_t inode)
{
	for (size_t i = seen_count; i--;)
		if (seen[i].inode == inode)
			return i;
	if (seen_count == SEEN_MAX)
		abort();
	seen[seen_count].inode = inode;
	return seen_count++;
}

static void note_change(int fd, bool is_folder)
{
	struct stat stat;
	size_t i;

	if (fstat(fd, &stat) || !(S_ISREG(stat.st_mode) || S_ISDIR(stat.st_mode)))
		return;
	pthread_mutex_lock(&mutex);
	i = find_inode(stat.st_ino);
	seen[i].changed = ++now;
	seen[i].is_folder = is_folder;
	pthread_mutex_unlock(&mutex);
}

/* What was changed before is on disk. */
static void note_sync(int fd, bool all, uint64_t before)
{
	struct stat stat;
	size_t folders = 0;

	if (fstat(fd, &stat))
		return;
	pthread_mutex_lock(&mutex);
	for (size_t i = 0; i < seen_count; i++) {
		if ((all || seen[i].inode == stat.st_ino) && seen[i].changed <= before)
			seen[i].changed = 0;
		folders += seen[i].is_folder && seen[i].changed;
	}
	say("sync %zu\n", folders);
	pthread_mutex_unlock(&mutex);
}

static uint64_t changes_so_far(void)
{
	uint64_t so_far;

	pthread_mutex_lock(&mutex);
	so_far = now;
	pthread_mutex_unlock(&mutex);
	return so_far;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
	note_change(fd, false);
	return REAL(pwrite)(fd, bytes, length, offset);
}

int fsync(int fd)
{
	uint64_t before = changes_so_far();
	int ret = REAL(fsync)(fd);

	if (!ret)
		note_sync(fd, false, before);
	return ret;
}

int syncfs(int fd)
{
	uint64_t before = changes_so_far();
	int ret = REAL(syncfs)(fd);

	if (!ret)
		note_sync(fd, true, before);
	return ret;
}

int renameat(int old_folder, const char *old_name, int new_folder, const char *new_name)
{
	struct stat stat;

	if (!fstatat(old_folder, old_name, &stat, AT_SYMLINK_NOFOLLOW)) {
		pthread_mutex_lock(&mutex);
		say("rename %.200s %s\n", new_name,
		    seen[find_inode(stat.st_ino)].changed ? "unsynced" : "synced");
		pthread_mutex_unlock(&mutex);
	}
	note_change(new_folder, true);
	return REAL(renameat)(old_folder, old_name, new_folder, new_name);
}
