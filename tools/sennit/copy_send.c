/* SPDX-License-Identifier: MIT */
/* The end that has the files. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "copy.h"

/* How much is read again at a time, to see whether what the peer has is the same. */
#define HASHED_MAX COPY_DATA_MAX

enum {
	NEXT,	 /* something new is looked for */
	ASKED,	 /* what does the peer have of it? */
	HASHING, /* is it the same? */
	SENDING,
	JUDGED, /* what does the peer say to it? */
	ENDING,
};

void copy_sender_begin(struct copy_sender *sender, struct copy_link *link,
		       struct copy_report *report, uint32_t digest_kind,
		       const struct copy_source *source, size_t count)
{
	memset(sender, 0, sizeof(*sender));
	sender->link = link;
	sender->report = report;
	sender->digest_kind = digest_kind;
	sender->entry.fd = -1;
	copy_walk_begin(&sender->walk, source, count);
}

static void close_file(struct copy_sender *sender)
{
	if (sender->entry.fd >= 0)
		close(sender->entry.fd);
	sender->entry.fd = -1;
}

void copy_sender_end(struct copy_sender *sender)
{
	close_file(sender);
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

/*
 * Something new
 */

/* Files of /proc and the like have no size, and bytes all the same. */
static bool has_size(const struct copy_entry *entry)
{
	char byte;

	return S_ISREG(entry->stat.st_mode) &&
	       (entry->stat.st_size || pread(entry->fd, &byte, 1, 0) <= 0);
}

static void propose(struct copy_sender *sender, enum copy_type type)
{
	const struct stat *stat = &sender->entry.stat;
	struct copy_frame frame = { .type = type, .mode = stat->st_mode & 0777 };

	sender->size =
		has_size(&sender->entry) ? (uint64_t)stat->st_size : COPY_UNKNOWN;
	memcpy(frame.text, sender->entry.path, sizeof(frame.text));
	memcpy(sender->report->path, frame.text, sizeof(frame.text));
	if (type == COPY_FILE) {
		frame.size = sender->size;
		frame.mtime_ns = (uint64_t)stat->st_mtim.tv_sec * 1000000000 +
				 (uint64_t)stat->st_mtim.tv_nsec;
		sender->report->at = 0;
		sender->report->size = sender->size;
	}
	copy_link_put(sender->link, &frame);
	sender->state = type == COPY_FILE ? ASKED : JUDGED;
}

static int find_next(struct copy_sender *sender)
{
	struct copy_frame frame = { .type = COPY_END };

	switch (copy_walk_next(&sender->walk, &sender->entry)) {
	case COPY_FOUND_FILE:
		propose(sender, COPY_FILE);
		break;
	case COPY_FOUND_FOLDER:
		/* The contents of a folder, without itself. */
		if (*sender->entry.path)
			propose(sender, COPY_DIRECTORY);
		break;
	case COPY_FOUND_PROBLEM:
		frame.type = COPY_PROBLEM;
		frame.error = (uint32_t)sender->entry.error;
		memcpy(frame.text, sender->entry.text, sizeof(sender->entry.text));
		tell_problem(sender, 0, frame.text);
		copy_link_put(sender->link, &frame);
		break;
	case COPY_FOUND_END:
		copy_link_put(sender->link, &frame);
		sender->state = ENDING;
		break;
	}
	return 1;
}

/*
 * A file
 */

static int start(struct copy_sender *sender, uint64_t offset)
{
	struct copy_frame frame = { .type = COPY_START, .offset = offset };

	if (!offset && copy_digest_begin(&sender->digest, sender->digest_kind))
		return copy_link_fail(sender->link, ENOMEM, "out of memory");
	sender->at = sender->resumed = offset;
	sender->report->at = offset;
	copy_link_put(sender->link, &frame);
	sender->state = SENDING;
	return 1;
}

/* What the peer has may be of another file, or of an older one with this name. */
static int hash_some(struct copy_sender *sender)
{
	uint8_t buffer[HASHED_MAX], digest[COPY_DIGEST];
	uint64_t left = sender->have.offset - sender->at;
	ssize_t length =
		pread(sender->entry.fd, buffer, left < HASHED_MAX ? left : HASHED_MAX,
		      (off_t)sender->at);

	if (length <= 0)
		return start(sender, 0);
	copy_digest_add(&sender->digest, buffer, (size_t)length);
	sender->at += (uint64_t)length;
	if (sender->at < sender->have.offset)
		return 1;
	if (copy_digest_value(&sender->digest, digest))
		return copy_link_fail(sender->link, ENOMEM, "out of memory");
	return start(sender, memcmp(digest, sender->have.digest, COPY_DIGEST)
				     ? 0
				     : sender->have.offset);
}

static bool has_changed(const struct copy_sender *sender)
{
	const struct stat *before = &sender->entry.stat;
	struct stat now;

	if (sender->size == COPY_UNKNOWN)
		return false;
	return fstat(sender->entry.fd, &now) || now.st_size != before->st_size ||
	       now.st_mtim.tv_sec != before->st_mtim.tv_sec ||
	       now.st_mtim.tv_nsec != before->st_mtim.tv_nsec ||
	       sender->at != (uint64_t)before->st_size;
}

static int finish(struct copy_sender *sender, enum copy_done done)
{
	struct copy_frame frame = { .type = COPY_DONE, .done = done };

	if (done == COPY_WHOLE && has_changed(sender))
		frame.done = COPY_CHANGED;
	if (copy_digest_value(&sender->digest, frame.digest))
		return copy_link_fail(sender->link, ENOMEM, "out of memory");
	copy_link_put(sender->link, &frame);
	close_file(sender);
	sender->state = done == COPY_GIVEN_UP ? NEXT : JUDGED;
	return 1;
}

static int send_some(struct copy_sender *sender)
{
	uint8_t *to = copy_link_data(sender->link);
	uint64_t left = sender->size - sender->at; /* as it was when it was opened */
	size_t wanted = sender->size == COPY_UNKNOWN || left > COPY_DATA_MAX
				? COPY_DATA_MAX
				: left;
	ssize_t length = wanted ? read(sender->entry.fd, to, wanted) : 0;

	if (sender->size != COPY_UNKNOWN && wanted)
		length = pread(sender->entry.fd, to, wanted, (off_t)sender->at);
	if (length < 0 && errno == EINTR)
		return 1;
	if (length < 0)
		return finish(sender, COPY_UNREADABLE);
	if (!length)
		return finish(sender, COPY_WHOLE);
	copy_digest_add(&sender->digest, to, (size_t)length);
	copy_link_put_data(sender->link, (uint32_t)length);
	sender->at += (uint64_t)length;
	sender->report->at = sender->at;
	sender->report->moved += (uint64_t)length;
	return 1;
}

/*
 * What the peer says
 */

static int on_have(struct copy_sender *sender, const struct copy_frame *frame)
{
	if (sender->state != ASKED)
		return copy_link_fail(sender->link, EPROTO, "the peer answers unasked");
	if (copy_digest_begin(&sender->digest, sender->digest_kind))
		return copy_link_fail(sender->link, ENOMEM, "out of memory");
	if (!frame->offset || sender->size == COPY_UNKNOWN ||
	    frame->offset > sender->size)
		return start(sender, 0);
	sender->have = *frame;
	sender->at = 0;
	sender->state = HASHING;
	return 1;
}

static int on_result(struct copy_sender *sender, const struct copy_frame *frame)
{
	if (sender->state != ASKED && sender->state != SENDING &&
	    sender->state != JUDGED)
		return copy_link_fail(sender->link, EPROTO, "the peer judges unasked");
	if (frame->error) {
		tell_problem(sender, (int)frame->error, frame->text);
		if (sender->state == SENDING)
			return finish(sender, COPY_GIVEN_UP);
	} else if (sender->state != JUDGED) {
		return copy_link_fail(sender->link, EPROTO,
				      "the peer is content too early");
	} else if (S_ISDIR(sender->entry.stat.st_mode)) {
		sender->report->folders++;
	} else {
		sender->report->files++;
		sender->report->bytes += sender->at;
		sender->report->resumed += sender->resumed;
	}
	close_file(sender);
	sender->state = NEXT;
	return 1;
}

static int listen_to(struct copy_sender *sender)
{
	struct copy_frame frame;
	int ret;

	/* Its answer may need an answer. */
	if (!copy_link_has_room(sender->link, COPY_CONTROL_MAX))
		return 0;
	ret = copy_link_next(sender->link, &frame);
	if (ret <= 0)
		return ret;
	if (frame.type == COPY_HAVE)
		return on_have(sender, &frame);
	if (frame.type == COPY_RESULT)
		return on_result(sender, &frame);
	if (frame.type == COPY_END && sender->state == ENDING) {
		sender->over = true;
		return 1;
	}
	return copy_link_fail(sender->link, EPROTO,
			      "the peer says what only a sender may");
}

int copy_sender_step(struct copy_sender *sender)
{
	int heard, pushed, did = 0;

	heard = listen_to(sender);
	if (heard < 0 || sender->over)
		return heard;
	if (copy_link_has_room(sender->link, COPY_DATA_MAX)) {
		switch (sender->state) {
		case NEXT:
			did = find_next(sender);
			break;
		case HASHING:
			did = hash_some(sender);
			break;
		case SENDING:
			did = send_some(sender);
			break;
		}
	}
	if (did < 0)
		return did;
	pushed = copy_link_push(sender->link);
	return pushed < 0 ? pushed : heard || did || pushed;
}
