/* SPDX-License-Identifier: MIT */
#include "lib/udp_faults.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct faults faults;

/* The datagram that waits to be overtaken. */
static struct {
	bool there;
	int fd;
	struct sockaddr_storage to;
	socklen_t to_size;
	size_t size;
	uint8_t bytes[65536];
} late;

static bool by_chance(unsigned of_1000)
{
	faults.seed = faults.seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (faults.seed >> 33) % 1000 < of_1000;
}

static size_t segment_size(struct msghdr *header)
{
	for (struct cmsghdr *control = CMSG_FIRSTHDR(header); control;
	     control = CMSG_NXTHDR(header, control)) {
		uint16_t size;

		if (control->cmsg_level != IPPROTO_UDP ||
		    control->cmsg_type != UDP_SEGMENT)
			continue;
		memcpy(&size, CMSG_DATA(control), sizeof(size));
		return size;
	}
	return 0;
}

static void send_late(void)
{
	if (!late.there)
		return;
	late.there = false;
	sendto(late.fd, late.bytes, late.size, 0, (struct sockaddr *)&late.to,
	       late.to_size);
}

static void keep_late(int fd, const struct msghdr *header, const uint8_t *bytes,
		      size_t size)
{
	send_late();
	late.there = true;
	late.fd = fd;
	late.size = size;
	late.to_size = header->msg_namelen;
	memcpy(&late.to, header->msg_name, header->msg_namelen);
	memcpy(late.bytes, bytes, size);
	faults.late_count++;
}

static void send_one(int fd, const struct msghdr *header, const uint8_t *bytes,
		     size_t size)
{
	bool doubled = by_chance(faults.doubled);

	faults.datagrams++;
	if (by_chance(faults.lost)) {
		faults.lost_count++;
		return;
	}
	if (!late.there && by_chance(faults.late)) {
		keep_late(fd, header, bytes, size);
		return;
	}
	for (unsigned i = 0; i < 1u + doubled; i++)
		sendto(fd, bytes, size, 0, header->msg_name, header->msg_namelen);
	faults.doubled_count += doubled;
	send_late();
}

static bool has_no_faults(void)
{
	return !faults.lost && !faults.doubled && !faults.late;
}

int __real_snt__udp_sendmmsg(int fd, struct mmsghdr *headers, unsigned count,
			     int flags);
int __wrap_snt__udp_sendmmsg(int fd, struct mmsghdr *headers, unsigned count,
			     int flags);

static int send_badly(int fd, struct mmsghdr *headers, unsigned count, int flags)
{
	struct msghdr *first = &headers->msg_hdr;

	if (faults.error) {
		errno = faults.error;
		return -1;
	}
	if (by_chance(faults.full)) {
		faults.full_count++;
		errno = EAGAIN;
		return -1;
	}
	if (faults.segments_error && segment_size(first)) {
		errno = faults.segments_error;
		return -1;
	}
	if (has_no_faults())
		return __real_snt__udp_sendmmsg(fd, headers, faults.full ? 1 : count,
						flags);
	for (unsigned i = 0; i < count; i++) {
		struct msghdr *header = &headers[i].msg_hdr;
		const uint8_t *bytes = header->msg_iov->iov_base;
		size_t left = header->msg_iov->iov_len, size = segment_size(header);

		if (!size)
			size = left;
		for (; left; left -= size, bytes += size) {
			if (size > left)
				size = left;
			send_one(fd, header, bytes, size);
		}
	}
	return count;
}

/* One thread that is held up, without the lock of everything else. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum {
		NONE,
		WANTED,
		DETAINED
	} state;
	int fd;
} detention = { .lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER };

static void stay_if_wanted(int fd)
{
	pthread_mutex_lock(&detention.lock);
	if (detention.state == WANTED && detention.fd == fd) {
		detention.state = DETAINED;
		pthread_cond_broadcast(&detention.changed);
		while (detention.state == DETAINED)
			pthread_cond_wait(&detention.changed, &detention.lock);
	}
	pthread_mutex_unlock(&detention.lock);
}

void faults_detain(int fd)
{
	pthread_mutex_lock(&detention.lock);
	detention.fd = fd;
	detention.state = WANTED;
	pthread_mutex_unlock(&detention.lock);
}

void faults_await_detained(void)
{
	pthread_mutex_lock(&detention.lock);
	while (detention.state == WANTED)
		pthread_cond_wait(&detention.changed, &detention.lock);
	pthread_mutex_unlock(&detention.lock);
}

void faults_release(void)
{
	pthread_mutex_lock(&detention.lock);
	detention.state = NONE;
	pthread_cond_broadcast(&detention.changed);
	pthread_mutex_unlock(&detention.lock);
}

int __wrap_snt__udp_sendmmsg(int fd, struct mmsghdr *headers, unsigned count, int flags)
{
	int ret;

	stay_if_wanted(fd);
	pthread_mutex_lock(&lock);
	ret = send_badly(fd, headers, count, flags);
	pthread_mutex_unlock(&lock);
	return ret;
}

void faults_set(struct faults new)
{
	pthread_mutex_lock(&lock);
	faults = new;
	pthread_mutex_unlock(&lock);
}

struct faults faults_get(void)
{
	struct faults copy;

	pthread_mutex_lock(&lock);
	copy = faults;
	pthread_mutex_unlock(&lock);
	return copy;
}
