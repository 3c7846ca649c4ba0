/* SPDX-License-Identifier: MIT */
/*
 * A peer of `sennit serve` or `sennit cp` that breaks the rules.
 *
 *	liar                    lists its cases
 *	liar CASE HOST PORT     of a server; 0 if the server refused
 *	liar serve-CASE         of a client: prints address and port, and serves one
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/sennit.h>

#include "copy_digest.h"
#include "copy_frame.h"
#include "lib/patience.h"

#define PATIENCE ((int64_t)patience_ns(10))

static struct snt_stream *stream;

static void check(ssize_t ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "liar: %s: %s\n", what, snt_err_text());
	exit(1);
}

/*
 * Frames, right or wrong
 */

/* The peer may be gone already, which is what is wanted. */
static void say_bytes(const void *bytes, size_t length)
{
	snt_stream_write_all(stream, bytes, length, PATIENCE);
}

static void say(struct copy_frame frame)
{
	uint8_t buffer[COPY_HEADER + COPY_CONTROL_MAX];
	ssize_t length = copy_frame_pack(&frame, buffer, sizeof(buffer));

	check(length, "pack");
	say_bytes(buffer, (size_t)length);
}

#define SAY(...) say((struct copy_frame){ __VA_ARGS__ })

static void say_data(const char *bytes, size_t length)
{
	SAY(.type = COPY_DATA, .length = (uint32_t)length);
	say_bytes(bytes, length);
}

/* The next frame; type 0 if there is none any more. */
static struct copy_frame hear(void)
{
	uint8_t buffer[COPY_HEADER + COPY_CONTROL_MAX];
	struct copy_frame frame = { 0 };
	ssize_t length;

	if (snt_stream_read_all(stream, buffer, COPY_HEADER, PATIENCE) != COPY_HEADER)
		return frame;
	length = copy_frame_length(buffer);
	check(length, "length");
	if (snt_stream_read_all(stream, buffer + COPY_HEADER, (size_t)length,
				PATIENCE) == length)
		check(copy_frame_unpack(buffer, COPY_HEADER + (size_t)length, &frame),
		      "unpack");
	return frame;
}

/* Asks to bring files, and is let in. */
static void push(void)
{
	SAY(.type = COPY_OPEN, .version = COPY_VERSION, .digests = COPY_CRC64);
	if (hear().type != COPY_READY) {
		fprintf(stderr, "liar: not let in\n");
		exit(1);
	}
}

static void propose(enum copy_type type, const char *path, uint64_t size)
{
	struct copy_frame frame = { .type = type, .mode = 0644, .size = size };

	if (type != COPY_FILE)
		frame.size = 0;
	snprintf(frame.text, sizeof(frame.text), "%s", path);
	say(frame);
}

static void give_damaged(const char *path)
{
	struct copy_frame done = { .type = COPY_DONE };

	propose(COPY_FILE, path, 5);
	if (hear().type != COPY_HAVE)
		return;
	SAY(.type = COPY_START);
	say_data("wrong", 5);
	memset(done.digest, 7, sizeof(done.digest));
	say(done);
}

/*
 * Cases
 */

static void bad_bytes(void)
{
	uint8_t bytes[64];

	memset(bytes, 0xff, sizeof(bytes));
	say_bytes(bytes, sizeof(bytes));
}

static void bad_length(void)
{
	static const uint8_t header[COPY_HEADER] = { 0,	   0,	 0,    COPY_FILE,
						     0xff, 0xff, 0xff, 0xff };

	say_bytes(header, sizeof(header));
}

/* A path with a NUL in it is not what it seems. */
static void bad_text(void)
{
	uint8_t buffer[COPY_HEADER + COPY_CONTROL_MAX];
	struct copy_frame frame = { .type = COPY_DIRECTORY,
				    .mode = 0755,
				    .text = "a#b" };
	ssize_t length = copy_frame_pack(&frame, buffer, sizeof(buffer));

	push();
	buffer[length - 2] = '\0';
	say_bytes(buffer, (size_t)length);
}

static void bad_mode(void)
{
	push();
	SAY(.type = COPY_DIRECTORY, .mode = 0xffffffff, .text = "d");
}

static void half_a_frame(void)
{
	static const uint8_t half[5] = { 0 };

	say_bytes(half, sizeof(half));
	snt_stream_shutdown(stream);
}

static void early_data(void)
{
	push();
	say_data("bytes", 5);
}

static void no_push(void)
{
	propose(COPY_FILE, "x", 5);
}

static void wrong_version(void)
{
	SAY(.type = COPY_OPEN, .version = 99, .digests = COPY_CRC64);
}

static void no_digest(void)
{
	SAY(.type = COPY_OPEN, .version = COPY_VERSION, .digests = 0x80);
}

static void open_twice(void)
{
	push();
	SAY(.type = COPY_OPEN, .version = COPY_VERSION, .digests = COPY_CRC64);
}

static void dot_dot(void)
{
	push();
	propose(COPY_FILE, "../x", 5);
}

static void dot_dot_inside(void)
{
	push();
	propose(COPY_FILE, "a/../../x", 5);
}

static void absolute(void)
{
	push();
	propose(COPY_FILE, "/tmp/x", 5);
}

static void empty_name(void)
{
	push();
	propose(COPY_FILE, "a//b", 5);
}

static void no_name(void)
{
	push();
	propose(COPY_FILE, "", 5);
}

static void part_name(void)
{
	push();
	propose(COPY_FILE, ".f.sennit-part", 5);
}

static void folder_outside(void)
{
	push();
	propose(COPY_DIRECTORY, "../x", 0);
}

static void damaged(void)
{
	push();
	give_damaged("f");
}

/* There is an "f" of three bytes. */
static void damaged_in_place(void)
{
	push();
	propose(COPY_FILE, "f", 3);
	if (hear().offset == 3)
		SAY(.type = COPY_START, .offset = 3);
	SAY(.type = COPY_DONE);
}

static void more_in_place(void)
{
	push();
	propose(COPY_FILE, "f", 3);
	if (hear().offset == 3)
		SAY(.type = COPY_START, .offset = 3);
	say_data("x", 1);
}

static void too_much(void)
{
	push();
	propose(COPY_FILE, "x", 3);
	hear();
	SAY(.type = COPY_START);
	say_data("bytes", 5);
}

static void too_little(void)
{
	push();
	propose(COPY_FILE, "f", 9);
	hear();
	SAY(.type = COPY_START);
	SAY(.type = COPY_DONE);
}

static void start_elsewhere(void)
{
	push();
	propose(COPY_FILE, "x", 9);
	hear();
	SAY(.type = COPY_START, .offset = 7);
}

static void done_unbegun(void)
{
	push();
	SAY(.type = COPY_DONE);
}

static void answers_itself(void)
{
	push();
	SAY(.type = COPY_HAVE);
}

static void out_of_turn(void)
{
	push();
	SAY(.type = COPY_FILE, .entry = 7, .mode = 0644, .size = 5, .text = "x");
}

static void too_many(void)
{
	push();
	for (uint32_t i = 0; i <= COPY_WINDOW; i++)
		SAY(.type = COPY_FILE, .entry = i, .mode = 0644, .size = 5,
		    .text = "x");
}

static void start_of_another(void)
{
	push();
	propose(COPY_FILE, "x", 5);
	hear();
	SAY(.type = COPY_START, .entry = COPY_WINDOW);
}

static void file_in_file(void)
{
	push();
	propose(COPY_FILE, "x", 5);
	hear();
	SAY(.type = COPY_START);
	SAY(.type = COPY_FILE, .entry = 1, .mode = 0644, .size = 5, .text = "y");
}

static void end_unjudged(void)
{
	push();
	propose(COPY_FILE, "x", 5);
	hear();
	SAY(.type = COPY_END);
}

/* What a client is told, which has asked for "f". */
static void serve_other_name(void)
{
	propose(COPY_FILE, "g", 5);
}

static void serve_dot_dot(void)
{
	propose(COPY_FILE, "../f", 5);
}

static void serve_folder(void)
{
	propose(COPY_DIRECTORY, "g", 0);
}

static void serve_deeper(void)
{
	propose(COPY_FILE, "f/../../f", 5);
}

static void serve_damaged(void)
{
	give_damaged("f");
}

static void serve_garbage(void)
{
	bad_bytes();
}

static void serve_result(void)
{
	SAY(.type = COPY_JUDGED);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "bad-bytes", bad_bytes },
	{ "bad-length", bad_length },
	{ "bad-text", bad_text },
	{ "bad-mode", bad_mode },
	{ "half-a-frame", half_a_frame },
	{ "early-data", early_data },
	{ "no-push", no_push },
	{ "wrong-version", wrong_version },
	{ "no-digest", no_digest },
	{ "open-twice", open_twice },
	{ "dot-dot", dot_dot },
	{ "dot-dot-inside", dot_dot_inside },
	{ "absolute", absolute },
	{ "empty-name", empty_name },
	{ "no-name", no_name },
	{ "part-name", part_name },
	{ "folder-outside", folder_outside },
	{ "damaged", damaged },
	{ "damaged-in-place", damaged_in_place },
	{ "more-in-place", more_in_place },
	{ "too-much", too_much },
	{ "too-little", too_little },
	{ "start-elsewhere", start_elsewhere },
	{ "done-unbegun", done_unbegun },
	{ "answers-itself", answers_itself },
	{ "out-of-turn", out_of_turn },
	{ "too-many", too_many },
	{ "start-of-another", start_of_another },
	{ "file-in-file", file_in_file },
	{ "end-unjudged", end_unjudged },
	{ "serve-other-name", serve_other_name },
	{ "serve-dot-dot", serve_dot_dot },
	{ "serve-folder", serve_folder },
	{ "serve-deeper", serve_deeper },
	{ "serve-damaged", serve_damaged },
	{ "serve-garbage", serve_garbage },
	{ "serve-result", serve_result },
};
#define CASES (sizeof(cases) / sizeof(*cases))

/*
 * Either end
 */

/* It was refused if the peer says so, or will hear no more. */
static int was_refused(void)
{
	struct copy_frame frame;

	do
		frame = hear();
	while (frame.type && frame.type != COPY_RESULT && frame.type != COPY_JUDGED);
	if (!frame.type || frame.error)
		return 1;
	fprintf(stderr, "liar: the peer was content\n");
	return 0;
}

/* A server may not have noticed that an earlier liar is gone, and says to try again. */
static int connect_with_patience(struct snt_loop *loop, const struct snt_endpoint *to)
{
	int ret = -EAGAIN;

	for (unsigned tries = 0; tries < 3 && ret; tries++) {
		check(snt_stream_connect(loop, to, NULL, &stream), "connect");
		ret = snt_stream_wait(stream, SNT_STREAM_OPEN, PATIENCE);
		if (!ret || !strstr(snt_err_text(), "try again"))
			return ret;
		snt_stream_destroy(stream);
	}
	return ret;
}

static int lie_to_server(struct snt_loop *loop, size_t i, const char *host,
			 const char *port)
{
	struct snt_endpoint to = { .size = sizeof(to),
				   .host = host,
				   .port = (uint16_t)strtoul(port, NULL, 10) };
	int refused;

	check(connect_with_patience(loop, &to), "connect");
	cases[i].run();
	refused = was_refused();
	snt_stream_destroy(stream);
	return !refused;
}

static int lie_to_client(struct snt_loop *loop, size_t i)
{
	struct snt_gid_info gid = { .size = sizeof(gid) };
	struct snt_stream_listener *listener;

	check(snt_stream_listener_create(loop, NULL, NULL, &listener), "listen");
	check(snt_device_query_gid(snt_ctx_device(snt_loop_ctx(loop), 0), 0, &gid),
	      "address");
	printf("%s %u\n", gid.text, snt_stream_listener_port(listener));
	fflush(stdout);
	check(snt_stream_listener_wait(listener, PATIENCE, &stream), "wait");
	if (hear().type == COPY_OPEN) {
		SAY(.type = COPY_READY, .digests = COPY_CRC64);
		cases[i].run();
		SAY(.type = COPY_END);
		while (hear().type)
			;
	}
	snt_stream_destroy(stream);
	return snt_stream_listener_destroy(listener);
}

int main(int argc, char **argv)
{
	struct snt_loop *loop;
	struct snt_ctx *ctx;
	int status = 2;

	if (argc == 1) {
		for (size_t i = 0; i < CASES; i++)
			puts(cases[i].name);
		return 0;
	}
	check(snt_ctx_create(NULL, &ctx), "open");
	check(snt_loop_create(ctx, NULL, &loop), "loop");
	for (size_t i = 0; i < CASES; i++)
		if (!strcmp(cases[i].name, argv[1]))
			status = argc == 4 ? lie_to_server(loop, i, argv[2], argv[3])
					   : lie_to_client(loop, i);
	snt_loop_destroy(loop);
	snt_ctx_destroy(ctx);
	return status;
}
