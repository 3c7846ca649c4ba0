/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SHM_LINK_H
#define SNT_DEV_SOFT_SHM_LINK_H

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "dev/soft/shm/vm_read_check.h"
#include "dev/soft/shm/ring.h"
#include "dev/soft/shm/share.h"
#include "util/list.h"

/*
 * A link from one device to another on the same host: a ring, and a socket between the
 * two processes that share it.
 *
 * Devices meet at abstract unix sockets, named by user, address and seat: nothing is left in
 * a file system, and nothing remains when a process ends, however it does. A device
 * that has packets for an address connects to it, creates the ring and passes it on. So
 * each direction is a link of its own, created by the sender, and two devices that
 * connect to each other at the same time do not interfere. The ring is sealed: neither
 * side can shrink it, which would be SIGBUS for the other.
 *
 * The socket stays open. Its end means that the other process, or its device, is gone;
 * messages on it are bells, which wake a sleeping peer, and words about memory
 * (share.h). An fd from the peer is never read or written.
 */

/* The first message from the connecting side; the memory comes with it. */
struct snt__shm_greeting {
	uint32_t version;
	uint32_t size; /* of the memory */
	uint8_t gid[16];
	struct snt__shm_vm_read_proof proof;
};

/* Changes whenever anything that is shared does. */
#define SNT__SHM_VERSION 0x534e5433u
#define SNT__SHM_SEALS	 (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* What a message on the socket is about. */
enum snt__shm_word {
	SNT__SHM_WORD_BELL = 'b',
	SNT__SHM_WORD_PULLS = 'p',  /* consumer: it can read our memory */
	SNT__SHM_WORD_OFFER = 'o',  /* producer: a place, whose fd comes with it */
	SNT__SHM_WORD_MAPPED = 'm', /* consumer: the place is mapped */
	SNT__SHM_WORD_END = 'e',    /* producer: the place is no longer used */
};

struct snt__shm_message {
	uint8_t word;
	uint8_t spare[7];
	uint64_t id; /* of a place, else 0 */
};

struct snt__shm_link {
	struct snt__link list;
	int fd;
	int epoll; /* the one that watches the socket; -1: none */
	bool out;  /* this side is the producer */
	bool full; /* out: no room for words in the socket; epoll reports when there is */
	bool greeted;
	bool rung;	 /* in: a bell is in the socket, or will be */
	bool pulls;	 /* the consumer can read the producer's memory */
	bool blocked;	 /* out: no room for long; packets that do not fit are lost */
	uint8_t gid[16]; /* the peer's address */
	uint8_t seat;	 /* out: its seat there */
	pid_t pid;	 /* the peer's, from the kernel; in */
	/* out: the ring has been full since, and the consumer's position was this; 0: the
	 * consumer keeps up. */
	uint64_t stalled_at, stalled_head;
	bool lacks_room; /* out: for any packet, when last asked */
	struct snt__shm_area *area;
	struct snt__shm_producer producer;
	struct snt__shm_consumer consumer;
	struct snt__soft_path path; /* in */
	struct snt__shm_shares shares;
};

/* The socket name for the device at a seat of an address. Returns its size. */
socklen_t snt__shm_name(const uint8_t gid[16], unsigned seat, struct sockaddr_un *name);

/* Listens where peers look for the device at a seat of an address. -1: errno. */
int snt__shm_listen(const uint8_t gid[16], unsigned seat);

/* Connects our device to that at a seat of an address. NULL if there is none, if it
 * belongs to another user, or if anything fails. */
struct snt__shm_link *snt__shm_connect(const uint8_t ours[16], const uint8_t theirs[16],
				       unsigned seat);

/* Does the process at the other end of a unix socket belong to our user? */
bool snt__shm_same_user(int fd, pid_t *pid_out);
bool snt__shm_is_our_user(uid_t user);

/* Accepts a link from a peer; it has no ring until the peer has greeted. NULL:
 * errno. */
struct snt__shm_link *snt__shm_accept(int listener, const uint8_t ours[16]);

/* The socket has a message, or has ended. False: the link is over. */
bool snt__shm_listen_to(struct snt__shm_link *link);

/* Wakes the peer. */
void snt__shm_ring_bell(const struct snt__shm_link *link);

/* Sends a word to the peer, with an fd or -1. False: the socket has no room now. */
bool snt__shm_say(const struct snt__shm_link *link, enum snt__shm_word word,
		  uint64_t id, int fd);

/* Changes the events that epoll waits for. False: that failed. */
bool snt__shm_await(struct snt__shm_link *link, uint32_t events);

/* Is the peer still the process that it was? A process that dies closes its socket
 * before its process id can be reused. */
bool snt__shm_lives(const struct snt__shm_link *link);

/* `ours` is false in a child of the process: the fd is closed, and the memory is not
 * mapped there. */
void snt__shm_link_free(struct snt__shm_link *link, bool ours);

#endif
