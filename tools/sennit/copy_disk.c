/* SPDX-License-Identifier: MIT */
#include "copy_disk.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sennit/loop.h>

/* Enough for 64 clients, each with two full groups, whose files are in as many folders. */
#define FILES_WANTED 65536

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	pthread_t thread;
	struct snt_loop *loop;
	struct copy_placing *first, **last;
	bool runs, ends;
} disk = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static struct copy_placing *next_placing(void)
{
	struct copy_placing *placing;

	while (!disk.first && !disk.ends)
		pthread_cond_wait(&disk.changed, &disk.mutex);
	placing = disk.first;
	if (placing) {
		disk.first = placing->next;
		if (!disk.first)
			disk.last = &disk.first;
	}
	return placing;
}

static void *place_groups(void *arg)
{
	struct copy_placing *placing;

	(void)arg;
	pthread_mutex_lock(&disk.mutex);
	while ((placing = next_placing())) {
		pthread_mutex_unlock(&disk.mutex);
		copy_group_place(placing->group);
		pthread_mutex_lock(&disk.mutex);
		placing->is_done = true;
		pthread_cond_broadcast(&disk.changed);
		snt_loop_wake(disk.loop);
	}
	pthread_mutex_unlock(&disk.mutex);
	return NULL;
}

/* Groups hold the descriptors of their files and folders, and a server has a group for each
 * client. The soft limit is often 1024, for programs that use select(2). */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= FILES_WANTED)
		return;
	limit.rlim_cur = limit.rlim_max < FILES_WANTED ? limit.rlim_max : FILES_WANTED;
	setrlimit(RLIMIT_NOFILE, &limit);
}

void copy_disk_begin(struct snt_loop *loop)
{
	sigset_t all, before;

	raise_file_limit();
	disk.loop = loop;
	disk.first = NULL;
	disk.last = &disk.first;
	disk.ends = false;
	/* Signals are for the thread that runs the loop. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	disk.runs = !pthread_create(&disk.thread, NULL, place_groups, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void copy_disk_end(void)
{
	if (!disk.runs)
		return;
	pthread_mutex_lock(&disk.mutex);
	disk.ends = true;
	pthread_cond_broadcast(&disk.changed);
	pthread_mutex_unlock(&disk.mutex);
	pthread_join(disk.thread, NULL);
	disk.runs = false;
}

void copy_disk_place(struct copy_placing *placing, struct copy_group *group)
{
	*placing = (struct copy_placing){ .group = group };
	if (!disk.runs) {
		copy_group_place(group);
		placing->is_done = true;
		return;
	}
	pthread_mutex_lock(&disk.mutex);
	*disk.last = placing;
	disk.last = &placing->next;
	pthread_cond_broadcast(&disk.changed);
	pthread_mutex_unlock(&disk.mutex);
}

bool copy_disk_is_done(struct copy_placing *placing)
{
	bool is_done;

	pthread_mutex_lock(&disk.mutex);
	is_done = placing->is_done;
	pthread_mutex_unlock(&disk.mutex);
	return is_done;
}

void copy_disk_wait(struct copy_placing *placing)
{
	pthread_mutex_lock(&disk.mutex);
	while (!placing->is_done)
		pthread_cond_wait(&disk.changed, &disk.mutex);
	pthread_mutex_unlock(&disk.mutex);
}
