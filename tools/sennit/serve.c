/* SPDX-License-Identifier: MIT */
/* sennit serve: serves a folder to `sennit cp` on other hosts. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sennit/sennit.h>

#include "command.h"
#include "commands.h"
#include "context.h"
#include "copy.h"
#include "copy_path.h"
#include "peer.h"

/* Steps of one session before the next one's turn. */
#define STEPS_MAX 32
/* How long a client may take to answer when another one wants to copy to the same
 * file. */
#define PROBE_NS UINT64_C(1000000000)
/* Groups of files that are old enough are put in place at least as often
 * (copy_group.h). */
#define WAIT_NS INT64_C(200000000)
/* Connections that are not yet set up. They do not count towards --connections. */
#define STRANGERS_MAX 1024

struct serve_opts {
	struct context_opts context;
	struct peer_opts peer;
	bool read_only;
	bool verbose;
	uint64_t lanes;
	uint64_t ring;
	uint64_t session_max;
};

struct session {
	struct session *next;
	struct snt_stream *stream;
	struct copy_link link;
	enum {
		OPENING,
		SENDING,
		RECEIVING,
		CLOSING
	} state;
	struct copy_report report;
	struct copy_sender sender;
	struct copy_receiver receiver;
	struct copy_source source; /* of the sender */
	int source_folder;
	char path[COPY_PATH_MAX]; /* that was asked for */
	char peer[64];
	/* Whether the client still answers; asked when another client copies to the
	 * same file. */
	struct {
		bool asked;
		uint64_t alive,
			heard; /* of the link, when it was asked or last heard */
		uint64_t since_ns;
	} probe;
};

static struct {
	const struct serve_opts *opts;
	struct snt_loop *loop;
	int root;
	struct session *sessions;
	uint64_t session_count;
} server;

/*
 * Sessions
 */

static void note_session_problem(void *arg, const char *text)
{
	const struct session *session = arg;

	output_note("%s: %s", session->peer, text);
}

static void turn_away_peer(struct session *session, struct snt_stream *stream,
			   const char *text)
{
	free(session);
	snt_stream_abort(stream, text);
	snt_stream_destroy(stream);
	output_note("a peer was turned away: %s", text);
}

static void on_copy_accepted(void *arg, struct snt_stream_listener *listener,
			     struct snt_stream *stream)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	struct session *session = calloc(1, sizeof(*session));

	(void)arg, (void)listener;
	if (server.session_count >= server.opts->session_max) {
		turn_away_peer(
			session, stream,
			"the server has reached its limit of connections (--connections); "
			"try again later");
		return;
	}
	if (!session || copy_link_begin(&session->link, stream)) {
		turn_away_peer(session, stream, "out of memory");
		return;
	}
	server.session_count++;
	session->stream = stream;
	session->source_folder = -1;
	if (snt_stream_conn(stream) && !snt_conn_query(snt_stream_conn(stream), &info))
		memcpy(session->peer, info.peer_address, sizeof(session->peer));
	session->report.problem = note_session_problem;
	session->report.arg = session;
	session->next = server.sessions;
	server.sessions = session;
	if (server.opts->verbose)
		output_note("%s: connected", session->peer);
}

static int close_session(struct session *session)
{
	session->state = CLOSING;
	if (session->link.error && session->link.error != EPIPE)
		output_note("%s: %s", session->peer, session->link.text);
	else
		snt_stream_shutdown(session->stream);
	return 0;
}

static void free_session(struct session *session)
{
	snt_stream_destroy(session->stream);
	copy_link_end(&session->link);
	free(session);
	server.session_count--;
}

/*
 * What a peer asks for
 */

static int answer_with_error(struct session *session, int error, const char *text)
{
	struct copy_frame frame = { .type = COPY_RESULT, .error = (uint32_t)error };

	snprintf(frame.text, COPY_TEXT_MAX, "%.500s: %.500s",
		 *session->path ? session->path : "/", text ? text : strerror(error));
	note_session_problem(session, frame.text);
	copy_link_put(&session->link, &frame);
	return 1;
}

static int answer_ready(struct session *session, uint32_t digest)
{
	struct copy_frame frame = { .type = COPY_READY, .digests = digest };

	copy_link_put(&session->link, &frame);
	return 1;
}

static int begin_sending(struct session *session, uint32_t digest, uint32_t flags)
{
	struct copy_source *source = &session->source;
	int folder =
		flags & COPY_ALONE ? copy_path_folder(server.root, session->path) : -1;

	if (folder >= 0) {
		close(folder);
		return answer_with_error(
			session, EISDIR,
			"it is a folder, and only a file can go there");
	}
	*source = (struct copy_source){ .name = ".", .top = "" };
	folder = *session->path
			 ? copy_path_parent(server.root, session->path, &source->name)
			 : copy_path_folder(server.root, "");
	if (folder < 0)
		return answer_with_error(session, -folder, NULL);
	if (*session->path)
		source->top = source->name;
	source->folder = session->source_folder = folder;
	copy_sender_begin(&session->sender, &session->link, &session->report, digest,
			  source, 1);
	session->state = SENDING;
	return answer_ready(session, digest);
}

/*
 * Two clients copy to the same file. Detecting the loss of a peer takes seconds, in
 * which the same client may connect again. So the server probes the first client, and
 * refuses the second one only if the first answers.
 */

static struct session *find_holder(const struct session *other, const struct stat *part)
{
	struct session *session = server.sessions;

	while (session && (session == other || session->state != RECEIVING ||
			   !copy_receiver_holds(&session->receiver, part)))
		session = session->next;
	return session;
}

static void probe_client(struct session *session)
{
	static const struct copy_frame frame = { .type = COPY_PROBE };

	if (!copy_link_has_room(&session->link, COPY_CONTROL_MAX))
		return;
	copy_link_put(&session->link, &frame);
	session->probe.asked = true;
	session->probe.alive = session->link.alive;
	session->probe.heard = session->link.heard;
	session->probe.since_ns = snt_loop_now(server.loop);
}

/* Data that arrived before the probe proves nothing, but is read first. */
static bool is_client_silent(struct session *session)
{
	uint64_t now = snt_loop_now(server.loop);

	if (session->probe.heard != session->link.heard ||
	    !copy_receiver_listens(&session->receiver)) {
		session->probe.heard = session->link.heard;
		session->probe.since_ns = now;
	}
	return now - session->probe.since_ns >= PROBE_NS;
}

static bool on_locked(void *arg, const struct stat *part)
{
	struct session *session = arg, *holder = find_holder(session, part);

	/* A session that waits for a lock reads no answers, and may wait for this
	 * one. */
	if (!holder || copy_receiver_is_locked(&holder->receiver))
		return false;
	if (!holder->probe.asked) {
		probe_client(holder);
	} else if (holder->probe.alive != holder->link.alive) {
		holder->probe.asked = false;
		return false;
	} else if (is_client_silent(holder)) {
		copy_link_fail(
			&holder->link, ECONNABORTED,
			"the client did not answer, and another one has taken over "
			"the file");
	}
	return true;
}

/* Into the folder of this name, if it exists, else under this name. */
static int begin_receiving(struct session *session, uint32_t digest, uint32_t flags)
{
	struct copy_receiver *receiver = &session->receiver;
	int folder = copy_path_folder(server.root, session->path);
	const char *name = "";

	if (server.opts->read_only) {
		if (folder >= 0)
			close(folder);
		return answer_with_error(session, EROFS, "this server is read-only");
	}
	if (folder == -ELOOP || (folder == -ENOTDIR && flags & COPY_INTO))
		return answer_with_error(session, ENOTDIR,
					 "this is no folder to copy into");
	if (folder == -ENOENT && flags & COPY_INTO)
		return answer_with_error(session, ENOENT,
					 "there is no such folder to copy into");
	if (folder == -ENOENT || folder == -ENOTDIR)
		folder = copy_path_parent(server.root, session->path, &name);
	if (folder < 0)
		return answer_with_error(session, -folder, NULL);
	memset(receiver, 0, sizeof(*receiver));
	snprintf(receiver->name, sizeof(receiver->name), "%s", name);
	receiver->keep_times = flags & COPY_TIMES;
	receiver->locked = on_locked;
	receiver->locked_arg = session;
	copy_receiver_begin(receiver, &session->link, &session->report, digest, folder);
	session->state = RECEIVING;
	return answer_ready(session, digest);
}

static int on_open(struct session *session, struct copy_frame *frame)
{
	uint32_t digest = copy_digest_best(frame->digests);
	const char *path = frame->text + strspn(frame->text, "/");
	size_t length = strlen(path);

	while (length && path[length - 1] == '/')
		length--;
	snprintf(session->path, sizeof(session->path), "%.*s", (int)length, path);
	if (frame->version != COPY_VERSION)
		return answer_with_error(session, EPROTONOSUPPORT,
					 "the two ends are of different versions");
	if (!digest)
		return answer_with_error(session, EPROTONOSUPPORT,
					 "the two ends share no checksum");
	if (!strcmp(session->path, "."))
		session->path[0] = '\0';
	if (copy_path_check(session->path))
		return answer_with_error(
			session, EINVAL,
			"this is no path below the folder that is served: no \"..\", no "
			"\".\", no names that are empty or too long, or end in " COPY_PART_SUFFIX);
	if (server.opts->verbose)
		output_note("%s: %s %s", session->peer,
			    frame->flags & COPY_PULL ? "takes" : "brings",
			    *session->path ? session->path : "/");
	return frame->flags & COPY_PULL
		       ? begin_sending(session, digest, frame->flags)
		       : begin_receiving(session, digest, frame->flags);
}

static int step_open(struct session *session)
{
	struct copy_frame frame;
	int pushed = copy_link_push(&session->link, false), ret;

	if (pushed < 0)
		return pushed;
	if (!copy_link_has_room(&session->link, COPY_CONTROL_MAX))
		return 0;
	ret = copy_link_next(&session->link, &frame);
	if (ret <= 0)
		return ret < 0 ? ret : pushed;
	if (frame.type != COPY_OPEN)
		return copy_link_fail(&session->link, EPROTO,
				      "the peer says something out of turn");
	return on_open(session, &frame);
}

static void end_transfer(struct session *session)
{
	const struct copy_report *report = &session->report;
	char size[OUTPUT_QUANTITY];

	if (session->state == SENDING)
		copy_sender_end(&session->sender);
	else if (session->state == RECEIVING)
		copy_receiver_end(&session->receiver);
	if (session->source_folder >= 0)
		close(session->source_folder);
	session->source_folder = -1;
	if (server.opts->verbose)
		output_note("%s: %s %s in %llu file%s; problems: %llu", session->peer,
			    session->state == SENDING ? "took" : "brought",
			    output_bytes(size, report->bytes),
			    (unsigned long long)report->files,
			    report->files == 1 ? "" : "s",
			    (unsigned long long)report->problems);
	session->report =
		(struct copy_report){ .problem = note_session_problem, .arg = session };
	session->state = OPENING;
}

/* 1: there is more to do; 0: not now; -1: the session has ended. */
static int step_session(struct session *session)
{
	struct snt_stream_info info = { .size = sizeof(info) };
	int ret = 0;

	switch (session->state) {
	case OPENING:
		ret = step_open(session);
		break;
	case SENDING:
		ret = copy_sender_step(&session->sender);
		if (ret >= 0 && session->sender.over)
			end_transfer(session);
		break;
	case RECEIVING:
		ret = copy_receiver_step(&session->receiver);
		if (ret >= 0 && session->receiver.over)
			end_transfer(session);
		break;
	case CLOSING:
		snt_stream_query(session->stream, &info);
		return info.state == SNT_STREAM_ENDED ? -1 : 0;
	}
	if (ret >= 0)
		return ret;
	if (session->state != OPENING)
		end_transfer(session);
	return close_session(session);
}

static bool step_all(void)
{
	struct session **link = &server.sessions;
	bool did = false;

	while (*link) {
		struct session *session = *link;
		int ret = 1;

		for (int i = 0; i < STEPS_MAX && ret > 0; i++)
			ret = step_session(session);
		did |= ret > 0;
		if (ret < 0) {
			*link = session->next;
			free_session(session);
		} else {
			link = &session->next;
		}
	}
	return did;
}

/*
 * The server
 */

static void end_sessions(void)
{
	while (server.sessions) {
		struct session *session = server.sessions;

		server.sessions = session->next;
		if (session->state == SENDING || session->state == RECEIVING)
			end_transfer(session);
		snt_stream_abort(session->stream, "the server ends");
		free_session(session);
	}
}

static int serve_until_stopped(void)
{
	int ret = 0;

	peer_catch_signals();
	while (!peer_stopped && ret >= 0)
		ret = snt_loop_wait(server.loop, step_all()	   ? 0
						 : server.sessions ? WAIT_NS
								   : 1000000000);
	end_sessions();
	if (ret < 0)
		return output_failed(NULL, "the loop failed: %s", snt_err_text());
	return STATUS_OK;
}

static int serve_copies(const struct serve_opts *opts)
{
	struct snt_stream_opts stream = { .size = sizeof(stream),
					  .lanes = (uint32_t)opts->lanes,
					  .recv_size = opts->ring,
					  .send_size = opts->ring };
	struct snt_stream_listener_opts listen = {
		.size = sizeof(listen),
		.stream = &stream,
		.connection_max = (uint32_t)opts->session_max + STRANGERS_MAX,
		.accepted = on_copy_accepted
	};
	struct snt_endpoint at = { .size = sizeof(at) };
	struct snt_stream_listener *listener;
	struct peer_secret secret;
	int status = peer_secret_read(&opts->peer, &secret);
	int ret;

	if (status)
		return status;
	peer_local(&opts->peer, &secret, &at);
	ret = snt_stream_listener_create(server.loop, &at, &listen, &listener);
	explicit_bzero(&secret, sizeof(secret));
	if (ret)
		return output_failed(context_remedy(ret), "cannot listen: %s",
				     snt_err_text());
	if (!at.secret)
		output_note("every host that reaches this port can %s the folder; use "
			    "--secret-file to admit only peers with the secret",
			    opts->read_only ? "read" : "read and write");
	peer_say_listening(listener);
	status = serve_until_stopped();
	snt_stream_listener_destroy(listener);
	return status;
}

static int serve_run(const void *opts_in, int count, char **argument)
{
	const struct serve_opts *opts = opts_in;
	const char *folder = count ? argument[0] : ".";
	int status;

	server.opts = opts;
	server.root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (server.root < 0)
		return output_failed(NULL, "%s: %s", folder, strerror(errno));
	/* A file that may not grow is an error of write(2), and must not end the
	 * server. */
	signal(SIGXFSZ, SIG_IGN);
	status = context_open_loop(&opts->context, &server.loop);
	if (!status) {
		copy_disk_begin(server.loop);
		status = serve_copies(opts);
		copy_disk_end();
		context_close_loop(server.loop);
	}
	close(server.root);
	return status;
}

const struct command serve_command = {
	.name = "serve",
	.summary = "offer a folder to sennit cp on other hosts",
	.arguments = "[FOLDER]",
	.description =
		"Lets `sennit cp` on other hosts copy files to and from a folder, "
		"until interrupted. Nothing outside the folder can be reached: paths "
		"with \"..\" are refused, and symbolic links are never followed. "
		"Several hosts may copy at the same time, and `sennit ping` is "
		"answered as well.\n\n"
		"A file that is being written has the name .NAME" COPY_PART_SUFFIX
		" until it is complete, verified and synced to disk; then it is "
		"renamed. What an interrupted copy leaves is used when the same file "
		"is copied again, and can be removed at any time.\n\n"
		"With a secret, only peers that know it can connect. Data is not "
		"encrypted.",
	.options =
		(const struct option_entry[]){
			{ .kind = OPTION_FLAG,
			  .letter = 'r',
			  .name = "read-only",
			  .offset = offsetof(struct serve_opts, read_only),
			  .help = "serve files, and accept none" },
			{ .kind = OPTION_NUMBER,
			  .letter = 'q',
			  .name = "lanes",
			  .argument = "N",
			  .offset = offsetof(struct serve_opts, lanes),
			  .max = SNT_LANES_MAX,
			  .standard = "0",
			  .help = "lanes of a connection; 0: one for each device" },
			{ .kind = OPTION_NUMBER,
			  .name = "ring",
			  .argument = "BYTES",
			  .offset = offsetof(struct serve_opts, ring),
			  .min = 64 << 10,
			  .max = SNT_STREAM_RING_MAX,
			  .standard = "4M",
			  .help = "memory for each direction of a connection" },
			{ .kind = OPTION_NUMBER,
			  .name = "connections",
			  .argument = "N",
			  .offset = offsetof(struct serve_opts, session_max),
			  .min = 1,
			  .max = 4096,
			  .standard = "64",
			  .help = "maximum number of connections" },
			{ .kind = OPTION_FLAG,
			  .letter = 'v',
			  .name = "verbose",
			  .offset = offsetof(struct serve_opts, verbose),
			  .help = "log every copy with its host" },
			{ .kind = OPTION_TABLE,
			  .table = peer_options,
			  .offset = offsetof(struct serve_opts, peer) },
			{ .kind = OPTION_TABLE,
			  .table = context_options,
			  .offset = offsetof(struct serve_opts, context) },
			{ 0 },
		},
	.examples =
		(const struct example[]){
			{ "sennit serve --secret-file key /srv/data",
			  "on one host, then" },
			{ "sennit cp --secret-file key big.bin 10.0.0.1:sub/",
			  "on another" },
			{ 0 },
		},
	.argument_max = 1,
	.opts_size = sizeof(struct serve_opts),
	.run = serve_run,
};
