/* SPDX-License-Identifier: MIT */
/*
 * The sending end. It proposes files ahead of the one that it sends, so that their
 * answers cost no waiting, and does not wait for the receiver's judgment, so that the
 * receiver can put many files on disk at once.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copy.h"

/* How much is read again at a time to check whether the peer's bytes are the same. */
#define HASHED_MAX COPY_DATA_MAX
/* Files that are open and not yet sent: of one sender, and of all in this process, which may
 * be a server with many clients and 1024 descriptors. */
#define AHEAD_MAX      64u
#define AHEAD_MAX_HERE 256u

enum {
	FREE,
	ASKED, /* a file: waits for HAVE; a folder: waits for JUDGED */
	KNOWN,
	HASHING, /* comparing digests */
	SENDING,
	SENT, /* waits for JUDGED */
};

/* States of the sender. */
enum {
	WALKING,
	WALKED, /* everything has been proposed */
	ENDING,
};

static unsigned open_here; /* files of all senders */

void copy_sender_begin(struct copy_sender *sender, struct copy_link *link,
		       struct copy_report *report, uint32_t digest_kind,
		       const struct copy_source *source, size_t count)
{
	memset(sender, 0, sizeof(*sender));
	sender->link = link;
	sender->report = report;
	sender->digest_kind = digest_kind;
	sender->pipe = -1;
	copy_walk_begin(&sender->walk, source, count);
}

static void close_outgoing(struct copy_outgoing *item)
{
	if (item->fd >= 0) {
		close(item->fd);
		open_here--;
	}
	item->fd = -1;
	free(item->path);
	item->path = NULL;
}

void copy_sender_end(struct copy_sender *sender)
{
	for (size_t i = 0; i < COPY_WINDOW; i++)
		if (sender->window[i].state != FREE)
			close_outgoing(&sender->window[i]);
	copy_walk_end(&sender->walk);
	copy_digest_end(&sender->digest);
}

static void tell_problem(struct copy_sender *sender, int error, const char *text)
{
	sender->report->problems++;
	sender->report->damaged += error == EBADMSG;
	if (sender->report->problem)
		sender->report->problem(sender->report->arg, text);
}

static struct copy_outgoing *item_of(struct copy_sender *sender, uint32_t entry)
{
	struct copy_outgoing *item = &sender->window[entry % COPY_WINDOW];

	return item->state != FREE && item->entry == entry ? item : NULL;
}

/*
 * Something new
 */

/* Files of /proc and the like have size 0 but contents. */
static bool has_size(const struct copy_entry *found)
{
	char byte;

	return S_ISREG(found->stat.st_mode) &&
	       (found->stat.st_size || pread(found->fd, &byte, 1, 0) <= 0);
}

static void propose_entry(struct copy_sender *sender, enum copy_type type)
{
	struct copy_entry *found = &sender->found;
	const struct stat *stat = &found->stat;
	struct copy_frame frame = { .type = type,
				    .entry = sender->next,
				    .mode = stat->st_mode & 0777 };
	struct copy_outgoing *item = &sender->window[sender->next % COPY_WINDOW];

	*item = (struct copy_outgoing){ .entry = sender->next++,
					.state = ASKED,
					.is_folder = type == COPY_DIRECTORY,
					.fd = -1 };
	sender->unjudged++;
	memcpy(frame.text, found->path, sizeof(frame.text));
	if (type == COPY_FILE) {
		item->fd = found->fd;
		open_here++;
		item->stat = *stat;
		item->path = strdup(found->path);
		item->size = has_size(found) ? (uint64_t)stat->st_size : COPY_UNKNOWN;
		frame.size = item->size;
		frame.mtime_ns = (uint64_t)stat->st_mtim.tv_sec * 1000000000 +
				 (uint64_t)stat->st_mtim.tv_nsec;
	}
	copy_link_put(sender->link, &frame);
}

/* The current file is always proposed: at least one is in flight. */
static bool may_propose(const struct copy_sender *sender)
{
	uint32_t ahead = sender->next - sender->current;

	return sender->state == WALKING &&
	       sender->window[sender->next % COPY_WINDOW].state == FREE &&
	       (!ahead || (ahead < AHEAD_MAX && open_here < AHEAD_MAX_HERE));
}

static int find_next(struct copy_sender *sender)
{
	struct copy_frame frame = { .type = COPY_PROBLEM };

	switch (copy_walk_next(&sender->walk, &sender->found)) {
	case COPY_FOUND_FILE:
		propose_entry(sender, COPY_FILE);
		break;
	case COPY_FOUND_FOLDER:
		/* The contents of a folder, without the folder itself. */
		if (*sender->found.path)
			propose_entry(sender, COPY_DIRECTORY);
		break;
	case COPY_FOUND_PROBLEM:
		frame.error = (uint32_t)sender->found.error;
		memcpy(frame.text, sender->found.text, sizeof(sender->found.text));
		tell_problem(sender, 0, frame.text);
		copy_link_put(sender->link, &frame);
		break;
	case COPY_FOUND_END:
		sender->state = WALKED;
		break;
	}
	return 1;
}

/*
 * A file
 */

static int start_sending(struct copy_sender *sender, struct copy_outgoing *item,
			 uint64_t offset)
{
	struct copy_frame frame = { .type = COPY_START,
				    .entry = item->entry,
				    .offset = offset };

	if (!offset && copy_digest_begin(&sender->digest, sender->digest_kind))
		return copy_link_fail(sender->link, ENOMEM, "out of memory");
	item->at = item->resumed = offset;
	sender->report->at = offset;
	copy_link_put(sender->link, &frame);
	item->state = SENDING;
	return 1;
}

static int begin_file(struct copy_sender *sender, struct copy_outgoing *item)
{
	snprintf(sender->report->path, sizeof(sender->report->path), "%s",
		 item->path ? item->path : "");
	sender->report->at = 0;
	sender->report->size = item->size;
	if (copy_digest_begin(&sender->digest, sender->digest_kind))
		return copy_link_fail(sender->link, ENOMEM, "out of memory");
	if (!item->have || item->size == COPY_UNKNOWN || item->have > item->size)
		return start_sending(sender, item, 0);
	item->at = 0;
	item->state = HASHING;
	return 1;
}

/* The peer's bytes may be of another file, or of an older one with this name. */
static int hash_sent_bytes(struct copy_sender *sender, struct copy_outgoing *item)
{
	uint8_t buffer[HASHED_MAX], digest[COPY_DIGEST];
	uint64_t left = item->have - item->at;
	ssize_t length = pread(item->fd, buffer, left < HASHED_MAX ? left : HASHED_MAX,
			       (off_t)item->at);

	if (length <= 0)
		return start_sending(sender, item, 0);
	copy_digest_add(&sender->digest, buffer, (size_t)length);
	item->at += (uint64_t)length;
	if (item->at < item->have)
		return 1;
	if (copy_digest_value(&sender->digest, digest))
		return copy_link_fail(sender->link, ENOMEM, "out of memory");
	return start_sending(sender, item,
			     memcmp(digest, item->have_digest, COPY_DIGEST)
				     ? 0
				     : item->have);
}

static bool has_changed(const struct copy_outgoing *item)
{
	const struct stat *before = &item->stat;
	struct stat now;

	if (item->size == COPY_UNKNOWN)
		return false;
	return fstat(item->fd, &now) || now.st_size != before->st_size ||
	       now.st_mtim.tv_sec != before->st_mtim.tv_sec ||
	       now.st_mtim.tv_nsec != before->st_mtim.tv_nsec ||
	       item->at != (uint64_t)before->st_size;
}

static int finish_file(struct copy_sender *sender, struct copy_outgoing *item,
		       enum copy_done done)
{
	struct copy_frame frame = { .type = COPY_DONE,
				    .entry = item->entry,
				    .done = done };

	if (done == COPY_WHOLE && has_changed(item))
		frame.done = COPY_CHANGED;
	if (copy_digest_value(&sender->digest, frame.digest))
		return copy_link_fail(sender->link, ENOMEM, "out of memory");
	copy_link_put(sender->link, &frame);
	close_outgoing(item);
	item->state = SENT;
	return 1;
}

static ssize_t read_file_bytes(const struct copy_outgoing *item, void *to,
			       size_t wanted)
{
	if (!wanted)
		return 0;
	return item->size == COPY_UNKNOWN
		       ? read(item->fd, to, wanted)
		       : pread(item->fd, to, wanted, (off_t)item->at);
}

/* Reading from a pipe must not keep this end from answering its peer, or from handling
 * a signal. */
static bool would_block(const struct copy_outgoing *item)
{
	struct pollfd poll_in = { .fd = item->fd, .events = POLLIN };

	return item->size == COPY_UNKNOWN && poll(&poll_in, 1, 0) == 0;
}

static int send_some(struct copy_sender *sender, struct copy_outgoing *item)
{
	uint8_t *to = copy_link_data(sender->link);
	uint64_t left = item->size - item->at; /* as it was when it was opened */
	size_t wanted = item->size == COPY_UNKNOWN || left > COPY_DATA_MAX
				? COPY_DATA_MAX
				: left;
	ssize_t length;

	if (would_block(item)) {
		sender->pipe = item->fd;
		return 0;
	}
	length = read_file_bytes(item, to, wanted);
	if (length < 0 && errno == EINTR)
		return 1;
	if (length < 0)
		return finish_file(sender, item, COPY_UNREADABLE);
	if (length) {
		copy_digest_add(&sender->digest, to, (size_t)length);
		copy_link_put_data(sender->link, (uint32_t)length);
		item->at += (uint64_t)length;
		sender->report->at = item->at;
		sender->report->moved += (uint64_t)length;
	}
	if (length && (item->size == COPY_UNKNOWN || item->at < item->size))
		return 1;
	/* After the last data there is room for a frame: see copy_sender_step(). */
	return finish_file(sender, item, COPY_WHOLE);
}

/* The first file that is not yet sent. NULL: there is none. */
static struct copy_outgoing *current_item(struct copy_sender *sender)
{
	for (; sender->current != sender->next; sender->current++) {
		struct copy_outgoing *item = item_of(sender, sender->current);

		if (item && !item->is_folder && item->state != SENT)
			return item;
	}
	return NULL;
}

static int advance_current(struct copy_sender *sender)
{
	struct copy_outgoing *item = current_item(sender);
	struct copy_frame frame = { .type = COPY_END };

	sender->pipe = -1;
	if ((!item || item->state != SENDING) && may_propose(sender))
		return find_next(sender);
	switch (item ? item->state : FREE) {
	case KNOWN:
		return begin_file(sender, item);
	case HASHING:
		return hash_sent_bytes(sender, item);
	case SENDING:
		return send_some(sender, item);
	}
	if (sender->state != WALKED || sender->unjudged)
		return 0;
	copy_link_put(sender->link, &frame);
	sender->state = ENDING;
	return 1;
}

/*
 * What the peer says
 */

static int on_have(struct copy_sender *sender, const struct copy_frame *frame)
{
	struct copy_outgoing *item = item_of(sender, frame->entry);

	if (!item || item->is_folder || item->state != ASKED)
		return copy_link_fail(
			sender->link, EPROTO,
			"the peer answered for a file that was not offered");
	item->have = frame->offset;
	memcpy(item->have_digest, frame->digest, COPY_DIGEST);
	item->state = KNOWN;
	return 1;
}

static int on_judged(struct copy_sender *sender, const struct copy_frame *frame)
{
	struct copy_outgoing *item = item_of(sender, frame->entry);
	int ret = 1;

	if (!item)
		return copy_link_fail(
			sender->link, EPROTO,
			"the peer reported on a file that was not offered");
	if (frame->error) {
		tell_problem(sender, (int)frame->error, frame->text);
		if (item->state == SENDING)
			ret = finish_file(sender, item, COPY_GIVEN_UP);
	} else if (item->is_folder) {
		sender->report->folders++;
	} else if (item->state == SENT) {
		sender->report->files++;
		sender->report->bytes += item->at;
		sender->report->resumed += item->resumed;
	} else {
		return copy_link_fail(sender->link, EPROTO,
				      "the peer accepted a file that was not yet sent");
	}
	close_outgoing(item);
	item->state = FREE;
	sender->unjudged--;
	return ret;
}

static int handle_next_frame(struct copy_sender *sender)
{
	struct copy_frame frame;
	int ret;

	/* A frame may need an answer. */
	if (!copy_link_has_room(sender->link, COPY_CONTROL_MAX))
		return 0;
	ret = copy_link_next(sender->link, &frame);
	if (ret <= 0)
		return ret;
	if (frame.type == COPY_HAVE)
		return on_have(sender, &frame);
	if (frame.type == COPY_JUDGED)
		return on_judged(sender, &frame);
	if (frame.type == COPY_END && sender->state == ENDING) {
		sender->over = true;
		return 1;
	}
	return copy_link_fail(sender->link, EPROTO,
			      "the peer sent a frame that only a sender may send");
}

int copy_sender_step(struct copy_sender *sender)
{
	int heard, pushed, did = 0;

	heard = handle_next_frame(sender);
	if (heard < 0 || sender->over)
		return heard;
	if (copy_link_has_room(sender->link, COPY_DATA_MAX + COPY_CONTROL_MAX))
		did = advance_current(sender);
	if (did < 0)
		return did;
	pushed = copy_link_push(sender->link, heard || did);
	return pushed < 0 ? pushed : heard || did || pushed;
}
