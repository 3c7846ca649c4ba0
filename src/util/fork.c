/* SPDX-License-Identifier: MIT */
/*
 * A child of the process shares the epoll instance, so that whatever it took or armed
 * there would be missing in the parent. It also has a copy of every fd, and a socket
 * ends only when all of its copies are closed: a child that lives on would keep ports
 * in use, and would hide the parent's death from peers. So it closes its copies of
 * sockets.
 */
#include "util/fork.h"

#include <pthread.h>
#include <unistd.h>

atomic_uint snt__fork_mark = 1;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct snt__link sockets = { &sockets, &sockets };

/* With the lock held, the child knows every socket that it has. */
static void lock_sockets(void)
{
	pthread_mutex_lock(&lock);
}

static void unlock_sockets(void)
{
	pthread_mutex_unlock(&lock);
}

static void close_sockets(void)
{
	atomic_fetch_add_explicit(&snt__fork_mark, 1, memory_order_relaxed);
	while (!snt__list_empty(&sockets)) {
		struct snt__socket *socket =
			snt__container(sockets.next, struct snt__socket, all);

		close(socket->fd);
		socket->fd = -1;
		snt__unlink(&socket->all);
	}
	pthread_mutex_unlock(&lock);
}

static void watch_forks_of_sockets(void)
{
	pthread_atfork(lock_sockets, unlock_sockets, close_sockets);
}

unsigned snt__fork_watch(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks_of_sockets);
	return atomic_load(&snt__fork_mark);
}

void snt__fork_hold(void)
{
	pthread_mutex_lock(&lock);
}

void snt__fork_release(void)
{
	pthread_mutex_unlock(&lock);
}

void snt__socket_add(struct snt__socket *socket, int fd)
{
	socket->fd = fd;
	snt__list_append(&sockets, &socket->all);
}

void snt__socket_close(struct snt__socket *socket)
{
	pthread_mutex_lock(&lock);
	snt__unlink(&socket->all);
	close(socket->fd);
	pthread_mutex_unlock(&lock);
}
