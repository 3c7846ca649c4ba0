/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SHM_LINK_H
#define SNT_DEV_SOFT_SHM_LINK_H

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "dev/soft/shm/proof.h"
#include "dev/soft/shm/ring.h"
#include "dev/soft/shm/share.h"
#include "util/list.h"

/*
 * A way from one device to another on the same host: a ring, and a socket between those
 * who share it.
 *
 * Devices meet at abstract unix sockets, whose names are made of address and user: there
 * is nothing in any file system, and nothing is left when a process ends, however it
 * does. Who has packets for an address connects to it, makes the ring and sends it along.
 * So each direction is a link of its own, made by who sends, and two who meet at the same
 * time do not get in each other's way. The ring is sealed: nobody can make it shorter,
 * which would be SIGBUS for the other.
 *
 * The socket stays. Its end is the end of the other process, or of its device; messages on
 * it are bells, for those who sleep, and words about memory (share.h). No fd of the
 * other's is ever read or written.
 */

/* The first message of who connects; the memory comes with it. */
struct snt__shm_greeting {
	uint32_t version;
	uint32_t size; /* of the memory */
	uint8_t gid[16];
	struct snt__shm_proof proof;
};

/* Changes whenever anything that is shared does. */
#define SNT__SHM_VERSION 0x534e5433u
#define SNT__SHM_SEALS	 (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* What a message on the socket is about. */
enum snt__shm_word {
	SNT__SHM_WORD_BELL = 'b',
	SNT__SHM_WORD_PULLS = 'p',  /* from who takes: it can read our memory */
	SNT__SHM_WORD_OFFER = 'o',  /* from who puts: a place, whose fd comes with it */
	SNT__SHM_WORD_MAPPED = 'm', /* from who takes: the answer */
	SNT__SHM_WORD_END = 'e',    /* from who puts: it is of no use any more */
};

struct snt__shm_message {
	uint8_t word;
	uint8_t spare[7];
	uint64_t id; /* of a place, else 0 */
};

struct snt__shm_link {
	struct snt__link list;
	int fd;
	int epoll; /* that waits for it; -1: none */
	bool out;  /* we put */
	bool full; /* out: the socket has no room for words; epoll tells when it has */
	bool greeted;
	bool pulls;   /* who takes can read the memory of who puts */
	bool blocked; /* out: there was no room for long; what does not fit is lost */
	uint8_t gid[16];     /* the other's address */
	pid_t pid;	     /* the other's, as far as the kernel tells; in */
	uint64_t stalled_at; /* out: since when there has been no room; 0: there is */
	struct snt__shm_area *area;
	struct snt__shm_producer producer;
	struct snt__shm_consumer consumer;
	struct snt__soft_path path; /* in */
	struct snt__shm_shares shares;
};

/* The name of the device of an address. Returns its size. */
socklen_t snt__shm_name(const uint8_t gid[16], struct sockaddr_un *name);

/* Where others find the device of an address; -1: errno. */
int snt__shm_listen(const uint8_t gid[16]);

/* A link to the device of an address, from that of ours; NULL if there is none, or it is
 * another user's, or anything fails. */
struct snt__shm_link *snt__shm_connect(const uint8_t ours[16],
				       const uint8_t theirs[16]);

/* One that somebody made to us; without a ring until it has greeted. NULL: errno. */
struct snt__shm_link *snt__shm_accept(int listener, const uint8_t ours[16]);

/* Something came over the socket, or its end. False: the link is over. */
bool snt__shm_listen_to(struct snt__shm_link *link);

/* Wakes the other. */
void snt__shm_ring_bell(const struct snt__shm_link *link);

/* Tells the other, with an fd or -1. False: there is no room for it now. */
bool snt__shm_say(const struct snt__shm_link *link, enum snt__shm_word word,
		  uint64_t id, int fd);

/* Waits for other events than before. False: nobody waits. */
bool snt__shm_await(struct snt__shm_link *link, uint32_t events);

/* Is the other still who it was? Who dies closes its socket before anybody else can have
 * its process id. */
bool snt__shm_lives(const struct snt__shm_link *link);

/* In a child of the process, `ours` is false: the fd is closed, and the memory is not
 * there. */
void snt__shm_link_free(struct snt__shm_link *link, bool ours);

#endif
