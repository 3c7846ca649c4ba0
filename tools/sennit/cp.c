/* SPDX-License-Identifier: MIT */
/* sennit cp: files and folders to and from a host that has `sennit serve`. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <sennit/sennit.h>

#include "command.h"
#include "commands.h"
#include "context.h"
#include "copy.h"
#include "peer.h"

#define PROGRESS_NS UINT64_C(100000000)
/* Before the loop runs again. */
#define STEPS_MAX  32
#define GOODBYE_NS UINT64_C(1000000000)
#define CLOSE_NS   UINT64_C(5000000000)

struct cp_opts {
	struct context_opts context;
	struct peer_opts peer;
	bool times, ignored;
	uint64_t lanes;
	uint64_t ring;
};

struct client {
	const struct cp_opts *opts;
	struct snt_loop *loop;
	struct snt_stream *stream;
	struct copy_link link;
	struct copy_report report;
	const char *host;
	uint32_t digest;
	uint64_t began_ns, shown_ns, shown_moved;
	double rate; /* recent average, bytes per second */
	bool to_stdout;
	int pipe;	  /* a descriptor to wait for besides the loop; -1: none */
	json_t *messages; /* messages about single files; NULL: no JSON */
};

/* More would not be read: all of them are on stderr. */
#define MESSAGES_MAX 1000

/*
 * HOST:PATH
 */

struct place {
	char host[256]; /* "": this host */
	const char *path;
};

/* A colon before any slash makes it a path on another host. IPv6 addresses are in
 * brackets. */
static int read_place(const char *text, struct place *place)
{
	const char *colon = text + strcspn(text, ":/");
	size_t length;

	*place = (struct place){ .path = text };
	if (!*text)
		return output_usage("\"\" is not a valid file name or HOST:PATH");
	if (*text == '[') {
		const char *end = strstr(text, "]:");

		if (!end)
			return output_usage("\"%s\" is not [ADDRESS]:PATH", text);
		length = (size_t)(end - ++text);
		colon = end + 1;
	} else {
		length = (size_t)(colon - text);
	}
	if (*colon != ':')
		return STATUS_OK;
	if (!length || length >= sizeof(place->host))
		return output_usage(
			"\"%s\" has no valid host before the colon; for a local file with a "
			"colon in its name write ./NAME",
			text);
	memcpy(place->host, text, length);
	place->path = colon + 1;
	return STATUS_OK;
}

static bool ends_in_slash(const char *path)
{
	size_t length = strlen(path);

	return length && path[length - 1] == '/';
}

/* The last name of a path; for "." and the like, the name of that folder. */
static void top_of(const char *path, char top[COPY_PATH_MAX])
{
	char copy[COPY_PATH_MAX], whole[PATH_MAX];

	snprintf(copy, sizeof(copy), "%s", path);
	snprintf(top, COPY_PATH_MAX, "%s", basename(copy));
	if ((!strcmp(top, ".") || !strcmp(top, "..")) && realpath(path, whole))
		snprintf(top, COPY_PATH_MAX, "%s", basename(whole));
}

/* The same for a path on the server: "" if it is the whole folder served. */
static void top_there(const char *path, char top[COPY_PATH_MAX])
{
	char copy[COPY_PATH_MAX];
	size_t length = strlen(path);

	while (length && path[length - 1] == '/')
		length--;
	snprintf(copy, sizeof(copy), "%.*s", (int)length, path);
	snprintf(top, COPY_PATH_MAX, "%s",
		 *copy && strcmp(copy, ".") ? basename(copy) : "");
}

/*
 * While it runs
 */

static void note_problem(void *arg, const char *text)
{
	struct client *client = arg;

	output_note("%s", text);
	if (client->messages && json_array_size(client->messages) < MESSAGES_MAX)
		json_array_append_new(client->messages, output_string(text));
}

static void show_copy_progress(struct client *client)
{
	const struct copy_report *report = &client->report;
	uint64_t now = snt_loop_now(client->loop), passed = now - client->shown_ns;
	char at[OUTPUT_QUANTITY], size[OUTPUT_QUANTITY], rate[OUTPUT_QUANTITY];
	char left[OUTPUT_QUANTITY] = "";

	if (!output_shows_progress() || passed < PROGRESS_NS)
		return;
	/* A moving average, so that the number is readable. */
	client->rate +=
		((double)(report->moved - client->shown_moved) * 1e9 / (double)passed -
		 client->rate) *
		(client->shown_moved ? 0.2 : 1);
	client->shown_ns = now;
	client->shown_moved = report->moved;
	output_bytes(at, report->at);
	output_rate(rate, client->rate);
	if (report->size == COPY_UNKNOWN || !report->size) {
		output_progress("%s  %s  %s", report->path, at, rate);
		return;
	}
	if (client->rate > 0)
		output_duration(left,
				(double)(report->size - report->at) / client->rate);
	output_progress("%3u%%  %s of %s  %s  ETA %s  %s",
			(unsigned)(report->at * 100 / report->size), at,
			output_bytes(size, report->size), rate, left, report->path);
}

static int fail_lost(struct client *client)
{
	return output_failed(
		"what arrived was kept; run the same command again to resume",
		"%s: connection lost: %s", client->host, client->link.text);
}

static int fail_interrupted(struct client *client)
{
	copy_link_fail(&client->link, EINTR, "the client was interrupted");
	return output_failed(
		"what arrived was kept; run the same command again to resume",
		"interrupted");
}

/* Waits for the loop, or for data in a pipe. */
static int wait_for_pipe(struct client *client)
{
	struct pollfd wanted[] = {
		{ .fd = snt_loop_fd(client->loop), .events = POLLIN },
		{ .fd = client->pipe, .events = POLLIN },
	};
	int ret = snt_loop_dispatch(client->loop, 0);

	if (ret)
		return ret;
	poll(wanted, 2, (int)(PROGRESS_NS / 1000000));
	return snt_loop_dispatch(client->loop, 0);
}

/* Does one step, then lets the loop run. */
static int run_loop_once(struct client *client, int did)
{
	int ret;

	if (did < 0)
		return fail_lost(client);
	if (peer_stopped)
		return fail_interrupted(client);
	show_copy_progress(client);
	if (!did && client->pipe >= 0)
		ret = wait_for_pipe(client);
	else
		ret = snt_loop_wait(client->loop, did ? 0 : (int64_t)PROGRESS_NS);
	if (ret < 0)
		return output_failed(NULL, "the loop failed: %s", snt_err_text());
	return STATUS_OK;
}

/* Asks for a transfer. The server answers READY, or what is wrong. */
static int request_transfer(struct client *client, const char *path, uint32_t flags)
{
	struct copy_frame frame = { .type = COPY_OPEN,
				    .version = COPY_VERSION,
				    .digests = copy_digest_known(),
				    .flags = flags };
	int ret = 0, status = STATUS_OK;

	if (snprintf(frame.text, sizeof(frame.text), "%s", path) >=
	    (int)sizeof(frame.text))
		return output_failed(NULL, "the path is too long");
	copy_link_has_room(&client->link, COPY_CONTROL_MAX);
	copy_link_put(&client->link, &frame);
	while (!status) {
		int pushed = copy_link_push(&client->link, false);

		ret = pushed < 0 ? pushed : copy_link_next(&client->link, &frame);
		if (ret > 0)
			break;
		status = run_loop_once(client, ret < 0 ? ret : pushed);
	}
	if (status)
		return status;
	if (frame.type == COPY_RESULT) {
		client->report.problems++;
		return output_failed(NULL, "%s: %s", client->host, frame.text);
	}
	client->digest = frame.digests;
	if (frame.type != COPY_READY ||
	    copy_digest_best(frame.digests) != frame.digests) {
		copy_link_fail(&client->link, EPROTO,
			       "the server sent a frame out of turn");
		return fail_lost(client);
	}
	return STATUS_OK;
}

/*
 * There
 */

static int send_steps(struct client *client, struct copy_sender *sender)
{
	int did = 1;

	for (int i = 0; i < STEPS_MAX && did > 0 && !sender->over; i++)
		did = copy_sender_step(sender);
	client->pipe = sender->pipe;
	return did;
}

static int push_files(struct client *client, char **source, size_t count,
		      const char *path)
{
	struct copy_source *sources = calloc(count, sizeof(*sources));
	char(*top)[COPY_PATH_MAX] = calloc(count, sizeof(*top));
	uint32_t flags = (client->opts->times ? COPY_TIMES : 0u) |
			 (count > 1 || ends_in_slash(path) ? COPY_INTO : 0u);
	static struct copy_sender sender;
	int status = sources && top ? request_transfer(client, path, flags)
				    : output_failed(NULL, "out of memory");

	for (size_t i = 0; !status && i < count; i++) {
		top_of(source[i], top[i]);
		sources[i] = (struct copy_source){ .folder = AT_FDCWD,
						   .name = source[i],
						   .top = top[i],
						   .follow = true,
						   .pipe = !strcmp(source[i], "-") };
		if (sources[i].pipe)
			sources[i].top = "stdin";
	}
	if (!status) {
		copy_sender_begin(&sender, &client->link, &client->report,
				  client->digest, sources, count);
		while (!status && !sender.over)
			status = run_loop_once(client, send_steps(client, &sender));
		client->pipe = -1;
		copy_sender_end(&sender);
	}
	free(sources);
	free(top);
	return status;
}

/*
 * And back
 */

/* Opens the target: an existing folder to put things into, or a new name. */
static int open_target(const char *target, bool into, struct copy_receiver *receiver)
{
	char copy[COPY_PATH_MAX];
	int folder = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (folder >= 0)
		return folder;
	if (into || (errno != ENOENT && errno != ENOTDIR)) {
		output_failed("create the folder first", "%s: %s", target,
			      strerror(errno));
		return -1;
	}
	snprintf(copy, sizeof(copy), "%s", target);
	snprintf(receiver->name, sizeof(receiver->name), "%s", basename(copy));
	snprintf(copy, sizeof(copy), "%s", target);
	folder = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		output_failed("create the folder first", "%s: %s", copy,
			      strerror(errno));
	return folder;
}

static int receive_steps(struct copy_receiver *receiver)
{
	int did = 1;

	for (int i = 0; i < STEPS_MAX && did > 0 && !receiver->over; i++)
		did = copy_receiver_step(receiver);
	return did;
}

static int pull_files(struct client *client, const char *path, const char *target,
		      bool into)
{
	static struct copy_receiver receiver;
	int root = -1, status;
	uint32_t flags = COPY_PULL | (client->opts->times ? COPY_TIMES : 0u) |
			 (client->to_stdout ? COPY_ALONE : 0u);

	memset(&receiver, 0, sizeof(receiver));
	receiver.keep_times = client->opts->times;
	receiver.to_stdout = client->to_stdout;
	top_there(path, receiver.top);
	if (!client->to_stdout) {
		root = open_target(target, into || !*receiver.top, &receiver);
		if (root < 0)
			return STATUS_FAILED;
	}
	copy_receiver_begin(&receiver, &client->link, &client->report, 0, root);
	status = request_transfer(client, path, flags);
	receiver.digest_kind = client->digest;
	while (!status && !receiver.over)
		status = run_loop_once(client, receive_steps(&receiver));
	copy_receiver_end(&receiver);
	return status;
}

/*
 * The whole
 */

static int connect_to(struct client *client)
{
	const struct cp_opts *opts = client->opts;
	struct snt_stream_opts stream = { .size = sizeof(stream),
					  .lanes = (uint32_t)opts->lanes,
					  .recv_size = opts->ring,
					  .send_size = opts->ring };
	struct snt_stream_info info = { .size = sizeof(info) };
	struct snt_endpoint to = { .size = sizeof(to) };
	struct peer_secret secret;
	int status = peer_secret_read(&opts->peer, &secret), ret;

	if (status)
		return status;
	peer_target(&opts->peer, &secret, client->host, &to);
	ret = snt_stream_connect(client->loop, &to, &stream, &client->stream);
	explicit_bzero(&secret, sizeof(secret));
	if (ret)
		return peer_failed(client->loop, client->host, &opts->peer, ret,
				   snt_err_text());
	ret = snt_stream_wait(client->stream, SNT_STREAM_OPEN,
			      (int64_t)(opts->peer.setup_ns + 1000000000));
	if (ret < 0) {
		snt_stream_query(client->stream, &info);
		return peer_failed(client->loop, client->host, &opts->peer, ret,
				   info.text);
	}
	/* Before this there was no server to be told of the end. */
	peer_catch_first_signal();
	return copy_link_begin(&client->link, client->stream)
		       ? output_failed(NULL, "out of memory")
		       : STATUS_OK;
}

static void disconnect_client(struct client *client)
{
	bool is_well = client->link.out && !client->link.error;

	/* The server is told, if it is still connected. */
	if (client->link.error)
		snt_stream_wait(client->stream, SNT_STREAM_OVER, (int64_t)GOODBYE_NS);
	if (!is_well || snt_stream_close(client->stream, (int64_t)CLOSE_NS))
		snt_stream_destroy(client->stream);
	copy_link_end(&client->link);
}

static void say_summary(const struct client *client, double seconds)
{
	const struct copy_report *report = &client->report;
	char size[OUTPUT_QUANTITY], rate[OUTPUT_QUANTITY], time[OUTPUT_QUANTITY];

	output_text("%llu file%s, %s in %s, ", (unsigned long long)report->files,
		    report->files == 1 ? "" : "s", output_bytes(size, report->bytes),
		    output_duration(time, seconds));
	if (report->moved && seconds > 0)
		output_text("%s, ", output_rate(rate, (double)report->moved / seconds));
	output_text("%s verified", copy_digest_name(client->digest));
	if (report->resumed)
		output_text("; %s were already there",
			    output_bytes(size, report->resumed));
	if (report->problems)
		output_text("; %llu not copied", (unsigned long long)report->problems);
	output_text("\n");
}

static json_t *json_summary(const struct client *client, double seconds, int status)
{
	const struct copy_report *report = &client->report;
	json_t *object = output_object();

	json_object_update_new(
		object,
		json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s}",
			  "host", client->host, "status", status, "files",
			  (json_int_t)report->files, "folders",
			  (json_int_t)report->folders, "bytes",
			  (json_int_t)report->bytes, "bytes_resumed",
			  (json_int_t)report->resumed, "bytes_moved",
			  (json_int_t)report->moved, "problems",
			  (json_int_t)report->problems, "damaged",
			  (json_int_t)report->damaged, "seconds", seconds, "digest",
			  copy_digest_name(client->digest)));
	json_object_set(object, "messages", client->messages);
	return object;
}

/* Messages have named what was not copied; the status summarises them. */
static int summarise_copy(struct client *client, int status)
{
	const struct copy_report *report = &client->report;
	double seconds = (double)(snt_loop_now(client->loop) - client->began_ns) / 1e9;
	bool is_some = report->files + report->folders;

	if (report->damaged)
		status = STATUS_DATA;
	else if (report->problems || status)
		status = is_some ? STATUS_PARTLY : STATUS_FAILED;
	if (client->to_stdout)
		return status;
	if (is_some || !status)
		say_summary(client, seconds);
	if (output.json)
		output_json(json_summary(client, seconds, status));
	return status;
}

static int connect_and_copy(struct client *client, char **source, size_t count,
			    const char *target, const struct place *to)
{
	struct place from;
	int status = connect_to(client);

	client->began_ns = client->shown_ns = snt_loop_now(client->loop);
	if (!status && *to->host)
		status = push_files(client, source, count, to->path);
	for (size_t i = 0; !status && !*to->host && i < count; i++) {
		status = read_place(source[i], &from);
		if (!status)
			status = pull_files(client, from.path, target,
					    count > 1 || ends_in_slash(target));
	}
	if (client->link.out)
		status = summarise_copy(client, status);
	disconnect_client(client);
	return status;
}

/* The sources are all on this host, or all on one other host with the target here. */
static int read_places(char **source, size_t count, const char *target,
		       struct place *to, struct place *from)
{
	int status = read_place(target, to);

	for (size_t i = 0; !status && i < count; i++) {
		struct place other;

		status = read_place(source[i], &other);
		if (status)
			return status;
		if (!*to->host == !*other.host)
			return output_usage(
				"exactly one of \"%s\" and \"%s\" must be HOST:PATH",
				source[i], target);
		if (i && strcmp(other.host, from->host))
			return output_usage("all sources must be on one host");
		*from = other;
	}
	return status;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Two sources with one name would overwrite each other, and the first be lost. */
static int check_names(char **source, size_t count, bool from_there)
{
	char(*top)[COPY_PATH_MAX] = calloc(count, sizeof(*top));
	const char **name = calloc(count, sizeof(*name));
	int status = top && name ? STATUS_OK : output_failed(NULL, "out of memory");

	for (size_t i = 0; !status && i < count; i++) {
		struct place place;

		read_place(source[i], &place);
		if (from_there)
			top_there(place.path, top[i]);
		else if (!strcmp(source[i], "-"))
			snprintf(top[i], sizeof(top[i]), "standard input");
		else
			top_of(place.path, top[i]);
		name[i] = top[i];
	}
	if (!status)
		qsort(name, count, sizeof(*name), compare_names);
	for (size_t i = 1; !status && i < count; i++)
		if (*name[i] && !strcmp(name[i], name[i - 1]))
			status = output_usage(
				"two sources are called \"%s\" and would become the same file; "
				"copy them one at a time, under different names",
				name[i]);
	free(name);
	free(top);
	return status;
}

static int cp_run(const void *opts_in, int count, char **argument)
{
	const struct cp_opts *opts = opts_in;
	const char *target = argument[count - 1];
	size_t sources = (size_t)count - 1;
	struct client client = { .opts = opts,
				 .pipe = -1,
				 .report = { .problem = note_problem,
					     .arg = &client } };
	struct place to, from;
	int status = read_places(argument, sources, target, &to, &from);

	if (status)
		return status;
	client.host = *to.host ? to.host : from.host;
	status = peer_check_target(&opts->peer, client.host);
	if (!status)
		status = check_names(argument, sources, !*to.host);
	if (status)
		return status;
	client.to_stdout = !*to.host && !strcmp(target, "-");
	if (client.to_stdout && (output.json || sources > 1))
		return output_usage(
			"only one file can go to standard output, and not with --json");
	signal(SIGXFSZ, SIG_IGN);
	status = context_open_loop(&opts->context, &client.loop);
	if (status)
		return status;
	client.messages = output.json ? json_array() : NULL;
	copy_disk_begin(client.loop);
	status = connect_and_copy(&client, argument, sources, target, &to);
	copy_disk_end();
	json_decref(client.messages);
	context_close_loop(client.loop);
	if (peer_stopped && status) {
		fflush(NULL);
		raise(peer_stopped); /* its default action is restored */
	}
	return status;
}

const struct command cp_command = {
	.name = "cp",
	.summary = "copy files and folders to or from a host that runs sennit serve",
	.arguments = "SOURCE... HOST:PATH | HOST:SOURCE... TARGET",
	.description =
		"Copies files, and folders with everything in them, over all lanes. "
		"PATH is relative to the folder that `sennit serve` offers. If the "
		"target is an existing folder, files are copied into it; otherwise "
		"it is the new name. \"-\" is standard input as SOURCE and standard "
		"output as TARGET.\n\n"
		"Every file is verified by SHA-256 (by a 64-bit CRC if either end "
		"was built without libcrypto) and synced to disk before it takes its "
		"name: an existing file is replaced as a whole or not at all. After "
		"an interruption at either end, the same command resumes; it first "
		"compares what arrived before. Symbolic links inside folders, and "
		"everything else that is neither a file nor a folder, are skipped "
		"with a message. Files keep their permissions, less the receiver's "
		"umask, but not their owners or holes. A file that changes while it "
		"is copied is dropped.\n\n"
		"The exit status is 0 if everything was copied, 3 if only some of it "
		"was, 1 if nothing was, and 4 if something arrived damaged.",
	.options =
		(const struct option_entry[]){
			{ .kind = OPTION_FLAG,
			  .letter = 't',
			  .name = "times",
			  .offset = offsetof(struct cp_opts, times),
			  .help = "keep the files' modification times" },
			{ .kind = OPTION_FLAG,
			  .letter = 'r',
			  .name = "recursive",
			  .offset = offsetof(struct cp_opts, ignored),
			  .help = "ignored; folders are always copied recursively" },
			{ .kind = OPTION_NUMBER,
			  .letter = 'q',
			  .name = "lanes",
			  .argument = "N",
			  .offset = offsetof(struct cp_opts, lanes),
			  .max = SNT_LANES_MAX,
			  .standard = "0",
			  .help = "lanes to ask for; 0: one for each device" },
			{ .kind = OPTION_NUMBER,
			  .name = "ring",
			  .argument = "BYTES",
			  .offset = offsetof(struct cp_opts, ring),
			  .min = 64 << 10,
			  .max = SNT_STREAM_RING_MAX,
			  .standard = "4M",
			  .help = "size of the ring in memory for each direction" },
			{ .kind = OPTION_TABLE,
			  .table = peer_options,
			  .offset = offsetof(struct cp_opts, peer) },
			{ .kind = OPTION_TABLE,
			  .table = context_options,
			  .offset = offsetof(struct cp_opts, context) },
			{ 0 },
		},
	.examples =
		(const struct example[]){
			{ "sennit cp big.bin 10.0.0.1:sub/",
			  "a file into a folder of the server" },
			{ "sennit cp --secret-file key 10.0.0.1:results .",
			  "a folder from the server" },
			{ "tar c . | sennit cp - 10.0.0.1:backup.tar",
			  "the output of a program" },
			{ "sennit cp 10.0.0.1:backup.tar - | tar x", "and back again" },
			{ 0 },
		},
	.argument_min = 2,
	.argument_max = -1,
	.opts_size = sizeof(struct cp_opts),
	.run = cp_run,
};
