/* SPDX-License-Identifier: MIT */
#include "dev/soft/shm/link.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "dev/shared_mem.h"
#include "dev/soft/alloc.h"

#define BACKLOG 64

/* Control data for one fd that is sent with a message. */
union enclosure {
	struct cmsghdr header;
	uint8_t space[CMSG_SPACE(sizeof(int))];
};

/*
 * Messages
 */

static bool send_with(const struct snt__shm_link *link, const void *bytes, size_t size,
		      int fd)
{
	struct iovec all = { (void *)bytes, size };
	union enclosure control = { 0 };
	struct msghdr message = { .msg_iov = &all, .msg_iovlen = 1 };

	if (fd >= 0) {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
	}
	return sendmsg(link->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
	       (ssize_t)size;
}

static int take_fd(struct msghdr *message)
{
	struct cmsghdr *control = CMSG_FIRSTHDR(message);
	int fd;

	if (!control || control->cmsg_level != SOL_SOCKET ||
	    control->cmsg_type != SCM_RIGHTS ||
	    control->cmsg_len != CMSG_LEN(sizeof(int)))
		return -1;
	memcpy(&fd, CMSG_DATA(control), sizeof(fd));
	return fd;
}

/* Returns the number of bytes received, as recv(2), and an fd or -1; a message that is
 * too long counts as 0 bytes. If the process has no room for the fd, it counts as not
 * sent. */
static ssize_t receive_with(const struct snt__shm_link *link, void *bytes, size_t size,
			    int *fd_out)
{
	struct iovec all = { bytes, size };
	union enclosure control = { 0 };
	/* Without the padding, which would leave room for a second fd. */
	struct msghdr message = { .msg_iov = &all,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = CMSG_LEN(sizeof(int)) };
	ssize_t got = recvmsg(link->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*fd_out = got < 0 ? -1 : take_fd(&message);
	if (got <= 0 || !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return got;
	if (*fd_out < 0 && !(message.msg_flags & MSG_TRUNC))
		return got;
	if (*fd_out >= 0)
		close(*fd_out);
	*fd_out = -1;
	return 0;
}

/* A bell can be dropped if the socket is full: there are others in it. */
bool snt__shm_say(const struct snt__shm_link *link, enum snt__shm_word word,
		  uint64_t id, int fd)
{
	struct snt__shm_message message = { .word = word, .id = id };

	return send_with(link, &message, sizeof(message), fd);
}

/*
 * Names and users
 */

socklen_t snt__shm_name(const uint8_t gid[16], unsigned seat, struct sockaddr_un *name)
{
	int length;

	*name = (struct sockaddr_un){ .sun_family = AF_UNIX };
	length = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1,
			  "sennit-shm-%u-", geteuid());
	for (unsigned i = 0; i < 16; i++)
		length += snprintf(name->sun_path + 1 + length,
				   sizeof(name->sun_path) - 1 - length, "%02x", gid[i]);
	length += snprintf(name->sun_path + 1 + length,
			   sizeof(name->sun_path) - 1 - length, "-%02x", seat);
	return offsetof(struct sockaddr_un, sun_path) + 1 + length;
}

/* In a user namespace all UIDs that are not mapped appear as this one, ours perhaps
 * too. */
#define STRANGERS 65534

static bool knows_everybody(void)
{
	FILE *map = fopen("/proc/self/uid_map", "re");
	uint32_t first, count;
	bool all;

	if (!map)
		return false;
	all = fscanf(map, "%" SCNu32 " %*u %" SCNu32, &first, &count) == 2 && !first &&
	      count == UINT32_MAX;
	fclose(map);
	return all;
}

bool snt__shm_is_our_user(uid_t user)
{
	return user == geteuid() && (user != STRANGERS || knows_everybody());
}

/* Any user can bind the name. */
bool snt__shm_same_user(int fd, pid_t *pid_out)
{
	struct ucred other;
	socklen_t size = sizeof(other);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) ||
	    !snt__shm_is_our_user(other.uid))
		return false;
	*pid_out = other.pid;
	return true;
}

static int open_shm_socket(void)
{
	return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int snt__shm_listen(const uint8_t gid[16], unsigned seat)
{
	struct sockaddr_un name;
	socklen_t size = snt__shm_name(gid, seat, &name);
	int fd = open_shm_socket();

	if (fd >= 0 &&
	    (bind(fd, (struct sockaddr *)&name, size) || listen(fd, BACKLOG))) {
		close(fd);
		return -1;
	}
	return fd;
}

/*
 * Memory
 */

/* A forked child has no use for the mapping, and would keep it alive after its parent
 * has left. */
static bool map_area(struct snt__shm_link *link, int memory)
{
	void *area = mmap(NULL, sizeof(struct snt__shm_area), PROT_READ | PROT_WRITE,
			  MAP_SHARED, memory, 0);

	if (area == MAP_FAILED)
		return false;
	madvise(area, sizeof(struct snt__shm_area), MADV_DONTFORK);
	link->area = area;
	link->producer.area = area;
	link->consumer.area = area;
	return true;
}

/* Memory without seals could be truncated while it is mapped. */
static bool memory_good(int fd)
{
	struct stat stat;
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & SNT__SHM_SEALS) == SNT__SHM_SEALS &&
	       !(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) && !fstat(fd, &stat) &&
	       stat.st_size == sizeof(struct snt__shm_area);
}

/*
 * Out
 */

static struct snt__shm_link *new_link(int fd, bool out)
{
	struct snt__shm_link *link = snt__soft_alloc(1, sizeof(*link));

	if (!link) {
		close(fd);
		return NULL;
	}
	link->fd = fd;
	link->epoll = -1;
	link->out = out;
	return link;
}

static bool send_greeting(struct snt__shm_link *link, const uint8_t ours[16],
			  int memory)
{
	struct snt__shm_greeting greeting = { .version = SNT__SHM_VERSION,
					      .size = sizeof(struct snt__shm_area) };

	memcpy(greeting.gid, ours, sizeof(greeting.gid));
	greeting.proof = snt__shm_vm_read_offer();
	return send_with(link, &greeting, sizeof(greeting), memory);
}

static bool greet_peer(struct snt__shm_link *link, const uint8_t ours[16])
{
	int memory = snt__shared_mem_file("sennit-shm", sizeof(struct snt__shm_area));
	bool done;

	if (memory < 0)
		return false;
	done = map_area(link, memory) && send_greeting(link, ours, memory);
	close(memory);
	link->greeted = done;
	return done;
}

struct snt__shm_link *snt__shm_connect(const uint8_t ours[16], const uint8_t theirs[16],
				       unsigned seat)
{
	struct sockaddr_un name;
	socklen_t size = snt__shm_name(theirs, seat, &name);
	struct snt__shm_link *link;
	int fd = open_shm_socket();

	if (fd < 0)
		return NULL;
	link = new_link(fd, true);
	if (!link)
		return NULL;
	memcpy(link->gid, theirs, sizeof(link->gid));
	link->seat = (uint8_t)seat;
	if (connect(fd, (struct sockaddr *)&name, size) ||
	    !snt__shm_same_user(fd, &link->pid) || !greet_peer(link, ours)) {
		snt__shm_link_free(link, true);
		return NULL;
	}
	return link;
}

/*
 * In
 */

struct snt__shm_link *snt__shm_accept(int listener, const uint8_t ours[16])
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct snt__shm_link *link;

	if (fd < 0)
		return NULL;
	link = new_link(fd, false);
	if (!link)
		return NULL;
	if (!snt__shm_same_user(fd, &link->pid)) {
		snt__shm_link_free(link, true);
		errno = EPERM;
		return NULL;
	}
	memcpy(link->path.target, ours, sizeof(link->path.target));
	return link;
}

/* Returns the memory's fd, or -1. */
static int receive_greeting(const struct snt__shm_link *link,
			    struct snt__shm_greeting *greeting)
{
	int fd;
	ssize_t got = receive_with(link, greeting, sizeof(*greeting), &fd);

	if (fd >= 0 &&
	    (got != sizeof(*greeting) || greeting->version != SNT__SHM_VERSION ||
	     greeting->size != sizeof(struct snt__shm_area))) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool be_greeted(struct snt__shm_link *link)
{
	struct snt__shm_greeting greeting;
	int memory = receive_greeting(link, &greeting);

	if (memory < 0)
		return false;
	link->greeted = memory_good(memory) && map_area(link, memory);
	close(memory);
	if (!link->greeted)
		return false;
	memcpy(link->gid, greeting.gid, sizeof(link->gid));
	memcpy(link->path.source, greeting.gid, sizeof(link->path.source));
	link->path.source_port = SNT__WIRE_PORT;
	link->pulls = snt__shm_vm_read_check(link->pid, &greeting.proof);
	if (link->pulls)
		snt__shm_say(link, SNT__SHM_WORD_PULLS, 0, -1);
	return true;
}

/*
 * Both
 */

/* The producer learns what the consumer can read; the consumer is told what to map or
 * unmap. */
static void hear_word(struct snt__shm_link *link,
		      const struct snt__shm_message *message, int fd)
{
	if (link->out && message->word == SNT__SHM_WORD_PULLS)
		link->pulls = true;
	else if (link->out && message->word == SNT__SHM_WORD_MAPPED)
		snt__shm_share_mapped(link, message->id);
	else if (!link->out && message->word == SNT__SHM_WORD_END)
		snt__shm_share_over(link, message->id);
	else if (!link->out && message->word == SNT__SHM_WORD_OFFER && fd >= 0 &&
		 snt__shm_share_map(link, message->id, fd))
		snt__shm_say(link, SNT__SHM_WORD_MAPPED, message->id, -1);
}

bool snt__shm_listen_to(struct snt__shm_link *link)
{
	struct snt__shm_message message;
	ssize_t got;
	int fd;

	if (!link->greeted)
		return be_greeted(link);
	/* One message per call: if there are more, the fd stays readable. */
	got = receive_with(link, &message, sizeof(message), &fd);
	if (got < 0)
		return errno == EAGAIN || errno == EINTR;
	if (got == sizeof(message))
		hear_word(link, &message, fd);
	if (fd >= 0)
		close(fd);
	return got == sizeof(message);
}

void snt__shm_ring_bell(const struct snt__shm_link *link)
{
	snt__shm_say(link, SNT__SHM_WORD_BELL, 0, -1);
}

bool snt__shm_await(struct snt__shm_link *link, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = link };

	return !epoll_ctl(link->epoll, EPOLL_CTL_MOD, link->fd, &event);
}

bool snt__shm_lives(const struct snt__shm_link *link)
{
	struct pollfd end = { .fd = link->fd };
	int ret;

	/* A pending signal interrupts poll() even with a timeout of 0. */
	do
		ret = poll(&end, 1, 0);
	while (ret < 0 && errno == EINTR);
	return ret == 0;
}

void snt__shm_link_free(struct snt__shm_link *link, bool ours)
{
	close(link->fd);
	if (link->area && ours)
		munmap(link->area, sizeof(*link->area));
	if (!link->out && ours)
		snt__shm_share_unmap_all(link);
	snt__soft_free(link);
}
