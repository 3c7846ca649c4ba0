/* SPDX-License-Identifier: MIT */
#include "dev/soft/shm/shm.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dev/soft/burst.h"
#include "dev/soft/shm/vm_read.h"

/* Peers beyond that many links to one device use sockets. */
#define LINKS_IN_MAX 256

#define EVENTS 8

static bool add_fd(struct snt__shm *shm, int fd, struct snt__shm_link *link)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = link };

	if (link)
		link->epoll = shm->fd;
	return !epoll_ctl(shm->fd, EPOLL_CTL_ADD, fd, &event);
}

/* shutdown() tells the peer at once, even if a child of this process still has the
 * socket. */
static void remove_link(struct snt__shm *shm, struct snt__shm_link *link)
{
	snt__unlink(&link->list);
	epoll_ctl(shm->fd, EPOLL_CTL_DEL, link->fd, NULL);
	shutdown(link->fd, SHUT_RDWR);
	if (link->out)
		snt__soft_device_set_reach(shm->core, link->gid, link->seat, 0);
	else
		shm->in_count--;
	snt__shm_link_free(link, true);
}

void snt__shm_break(struct snt__shm *shm, struct snt__shm_link *link)
{
	shm->stats.broken++;
	remove_link(shm, link);
}

/*
 * Meeting
 */

struct snt__shm_link *snt__shm_find(struct snt__shm *shm, const uint8_t target[16],
				    unsigned seat)
{
	for (struct snt__link *at = shm->outs.next; at != &shm->outs; at = at->next) {
		struct snt__shm_link *link =
			snt__container(at, struct snt__shm_link, list);

		if (link->seat == seat && !memcmp(link->gid, target, 16))
			return link;
	}
	return NULL;
}

static void be_found(struct snt__shm *shm)
{
	shm->listener = snt__shm_listen(shm->gid, shm->seat);
	if (shm->listener < 0 || add_fd(shm, shm->listener, NULL))
		return;
	close(shm->listener);
	shm->listener = -1;
}

/* A client in the backlog believes that it is connected, and that what it sends
 * arrives. */
static void hang_up_on_all(struct snt__shm *shm)
{
	epoll_ctl(shm->fd, EPOLL_CTL_DEL, shm->listener, NULL);
	close(shm->listener);
	be_found(shm);
}

uint32_t snt__shm_reach(struct snt__shm *shm, const uint8_t target[16], unsigned seat)
{
	struct snt__shm_link *link;

	if (!shm->links)
		return 0;
	if (shm->listener < 0)
		be_found(shm);
	link = snt__shm_find(shm, target, seat);
	if (link && snt__shm_lives(link))
		return SNT__SHM_PAYLOAD_MAX;
	if (link)
		remove_link(shm, link);
	link = snt__shm_connect(shm->gid, target, seat);
	if (!link)
		return 0;
	if (!add_fd(shm, link->fd, link)) {
		snt__shm_link_free(link, true);
		return 0;
	}
	snt__list_append(&shm->outs, &link->list);
	shm->stats.links_out++;
	snt__soft_device_set_reach(shm->core, target, seat, SNT__SHM_PAYLOAD_MAX);
	return SNT__SHM_PAYLOAD_MAX;
}

static void accept_link(struct snt__shm *shm)
{
	struct snt__shm_link *link = snt__shm_accept(shm->listener, shm->gid);

	if (!link &&
	    (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
		hang_up_on_all(shm);
	if (!link)
		return;
	if (shm->in_count == LINKS_IN_MAX || !add_fd(shm, link->fd, link)) {
		snt__shm_link_free(link, true);
		return;
	}
	snt__list_append(&shm->ins, &link->list);
	shm->in_count++;
	shm->stats.links_in++;
}

/* False: the link is over. */
static bool serve_link(struct snt__shm *shm, struct snt__shm_link *link,
		       uint32_t events, uint64_t now)
{
	if (events & EPOLLOUT)
		snt__shm_share_resume(link);
	if (!snt__shm_listen_to(link))
		return false;
	if (link->shares.any_over) {
		snt__shm_drain(shm, link, now);
		snt__shm_share_unmap_over(link);
	}
	return true;
}

static void serve_or_end(struct snt__shm *shm, struct snt__shm_link *link,
			 uint32_t events, uint64_t now)
{
	if (serve_link(shm, link, events, now))
		return;
	if (!link->out && link->greeted)
		snt__shm_drain(shm, link, now);
	remove_link(shm, link);
}

void snt__shm_serve(struct snt__shm *shm, uint64_t now)
{
	struct epoll_event events[EVENTS];
	int count = epoll_wait(shm->fd, events, EVENTS, 0);

	/* Each is about a different link, so that none of them is freed by another. */
	for (int i = 0; i < count; i++) {
		struct snt__shm_link *link = events[i].data.ptr;

		if (events[i].data.ptr == &shm->serve_other)
			shm->serve_other(shm->other_arg);
		else if (link)
			serve_or_end(shm, link, events[i].events, now);
		else
			accept_link(shm);
	}
}

void snt__shm_forget(struct snt__shm *shm, const void *bytes, size_t length)
{
	for (struct snt__link *at = shm->outs.next; at != &shm->outs; at = at->next)
		snt__shm_share_end(snt__container(at, struct snt__shm_link, list),
				   bytes, length);
}

/*
 * Opening and closing
 */

void snt__shm_init(struct snt__shm *shm)
{
	shm->fd = shm->listener = -1;
	snt__list_init(&shm->outs);
	snt__list_init(&shm->ins);
}

int snt__shm_watch_other(struct snt__shm *shm, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = &shm->serve_other };

	return epoll_ctl(shm->fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

int snt__shm_open(struct snt__shm *shm, const uint8_t gid[16], unsigned seat,
		  bool wanted, struct snt__soft_device *core)
{
	memcpy(shm->gid, gid, sizeof(shm->gid));
	shm->seat = (uint8_t)seat;
	shm->core = core;
	shm->fd = epoll_create1(EPOLL_CLOEXEC);
	if (shm->fd < 0)
		return -errno;
	if (wanted)
		be_found(shm);
	shm->links = shm->listener >= 0;
	return 0;
}

static void free_links(struct snt__link *list, bool ours)
{
	while (!snt__list_empty(list)) {
		struct snt__shm_link *link =
			snt__container(list->next, struct snt__shm_link, list);

		snt__unlink(&link->list);
		snt__shm_link_free(link, ours);
	}
}

void snt__shm_close(struct snt__shm *shm, bool ours)
{
	free_links(&shm->outs, ours);
	free_links(&shm->ins, ours);
	shm->in_count = 0;
	if (shm->listener >= 0)
		close(shm->listener);
	if (shm->fd >= 0)
		close(shm->fd);
	shm->fd = shm->listener = -1;
	shm->links = false;
}

/*
 * Sleeping
 */

bool snt__shm_note_bells(struct snt__shm *shm)
{
	bool found = false;

	for (struct snt__link *at = shm->ins.next; at != &shm->ins; at = at->next) {
		struct snt__shm_link *link =
			snt__container(at, struct snt__shm_link, list);

		link->rung |= link->greeted && snt__shm_is_rung(&link->consumer);
		found |= link->rung;
	}
	return found;
}

void snt__shm_take_bells(struct snt__shm *shm, uint64_t now)
{
	for (struct snt__link *at = shm->ins.next, *next; at != &shm->ins; at = next) {
		struct snt__shm_link *link =
			snt__container(at, struct snt__shm_link, list);

		next = at->next;
		if (!link->rung)
			continue;
		link->rung = false;
		serve_or_end(shm, link, EPOLLIN, now);
	}
}

void snt__shm_wake(struct snt__shm *shm)
{
	for (struct snt__link *at = shm->ins.next; at != &shm->ins; at = at->next) {
		struct snt__shm_link *link =
			snt__container(at, struct snt__shm_link, list);

		if (link->greeted)
			snt__shm_rise(&link->consumer);
	}
}

bool snt__shm_sleep(struct snt__shm *shm)
{
	for (struct snt__link *at = shm->ins.next; at != &shm->ins; at = at->next) {
		struct snt__shm_link *link =
			snt__container(at, struct snt__shm_link, list);

		if (link->greeted && !snt__shm_rest(&link->consumer)) {
			snt__shm_wake(shm);
			return false;
		}
	}
	return true;
}
