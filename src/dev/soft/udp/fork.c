/* SPDX-License-Identifier: MIT */
/*
 * A child of the process shares the sockets of its devices and has a copy of all their
 * state, but none of their threads. If it used them, it would send in the parent's name
 * and take the parent's packets. So in a child, devices that were opened before the
 * fork have no socket, and every verb fails except those that destroy.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "dev/soft/core.h"
#include "dev/soft/udp/device.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct snt__udp_device *devices;

/* With all locks held, the child's copy is consistent. */
static void lock_devices(void)
{
	pthread_mutex_lock(&lock);
	for (struct snt__udp_device *device = devices; device; device = device->next)
		snt__udp_lock(device);
}

static void unlock_all(void)
{
	for (struct snt__udp_device *device = devices; device; device = device->next)
		snt__udp_unlock(device);
	pthread_mutex_unlock(&lock);
}

static int refuse_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		       struct ibv_send_wr **bad_wr)
{
	(void)qp;
	*bad_wr = wr;
	return EIO;
}

static int refuse_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		       struct ibv_recv_wr **bad_wr)
{
	(void)qp;
	*bad_wr = wr;
	return EIO;
}

static int refuse_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			   struct ibv_recv_wr **bad_wr)
{
	(void)srq;
	*bad_wr = wr;
	return EIO;
}

static int refuse_poll_in_child(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	(void)cq;
	(void)count;
	(void)wc;
	return -EIO;
}

static int refuse_notify(struct ibv_cq *cq, int solicited_only)
{
	(void)cq;
	(void)solicited_only;
	return EIO;
}

static void disown_device(struct snt__udp_device *device)
{
	static const struct ibv_context_ops refuse = {
		.post_send = refuse_send,
		.post_recv = refuse_recv,
		.post_srq_recv = refuse_srq_recv,
		.poll_cq = refuse_poll_in_child,
		.req_notify_cq = refuse_notify,
	};

	snt__soft_contexts_replace(device->core, &refuse);
	/* Raises no events of a dead device: their fds are the parent's, too. */
	device->core->dead = true;
	device->core->port_up = false;
	device->foreign = true;
	snt__shm_close(&device->shm, false);
	snt__udp_rx_hold_finish(&device->receiver.rx_hold);
	close(device->socket.fd);
	snt__udp_share_close(&device->share);
	close(device->wake_fd);
}

static void disown_devices(void)
{
	for (struct snt__udp_device *device = devices; device; device = device->next)
		disown_device(device);
	snt__soft_bells_disown();
	unlock_all();
	devices = NULL;
}

static void watch_forks_of_devices(void)
{
	pthread_atfork(lock_devices, unlock_all, disown_devices);
}

void snt__udp_fork_hold(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks_of_devices);
	pthread_mutex_lock(&lock);
}

void snt__udp_fork_release(void)
{
	pthread_mutex_unlock(&lock);
}

void snt__udp_fork_add(struct snt__udp_device *device)
{
	device->next = devices;
	device->to = &devices;
	if (devices)
		devices->to = &device->next;
	devices = device;
}

void snt__udp_fork_remove(struct snt__udp_device *device)
{
	*device->to = device->next;
	if (device->next)
		device->next->to = device->to;
}

struct snt__udp_device *snt__udp_fork_find(const struct snt__udp_address *address)
{
	struct snt__udp_device *device = devices;

	while (device && (device->address.scope != address->scope ||
			  memcmp(device->address.gid, address->gid, 16)))
		device = device->next;
	return device;
}
