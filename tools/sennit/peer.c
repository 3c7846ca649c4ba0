/* SPDX-License-Identifier: MIT */
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <sennit/sennit.h>

#include "command.h"
#include "context.h"

/* Without the mask other users could read it. */
#define MAKE_SECRET "(umask 077; openssl rand -hex 32 >FILE)"

const struct option_entry peer_options[] = {
	{ .kind = OPTION_GROUP, .help = "Connections (both ends need the same)" },
	{ .kind = OPTION_NUMBER,
	  .letter = 'p',
	  .name = "port",
	  .argument = "PORT",
	  .offset = offsetof(struct peer_opts, port),
	  .standard = PEER_PORT,
	  .max = UINT16_MAX,
	  .help = "port on which the server listens; a server with 0 takes any free "
		  "one" },
	{ .kind = OPTION_CHOICE,
	  .name = "carrier",
	  .argument = "cm|tcp",
	  .offset = offsetof(struct peer_opts, carrier),
	  .standard = "cm",
	  .help = "how connections are set up: by the devices' connection manager, "
		  "with addresses of RDMA devices, or over TCP, for networks without "
		  "one" },
	{ .kind = OPTION_TEXT,
	  .name = "secret-file",
	  .argument = "FILE",
	  .offset = offsetof(struct peer_opts, secret_file),
	  .help = "file with a secret of 16 to 256 bytes, the same at both ends, "
		  "without which no peer connects: " MAKE_SECRET },
	{ .kind = OPTION_TEXT,
	  .name = "source",
	  .argument = "ADDRESS",
	  .offset = offsetof(struct peer_opts, source),
	  .help = "address of this host to connect from, or the only one to listen on" },
	{ .kind = OPTION_TIME,
	  .name = "setup-time",
	  .argument = "TIME",
	  .offset = offsetof(struct peer_opts, setup_ns),
	  .standard = "10s",
	  .min = 100000000,
	  .help = "time limit for setting up a connection, with all lanes tried" },
	{ .kind = OPTION_TIME,
	  .name = "detect-time",
	  .argument = "TIME",
	  .offset = offsetof(struct peer_opts, detect_ns),
	  .standard = "5s",
	  .min = 50000000,
	  .help = "time within which the loss of the peer is detected; the smaller "
		  "value of both ends applies" },
	{ 0 },
};

int peer_check_target(const struct peer_opts *opts, const char *host)
{
	if (!*host)
		return output_usage("missing host name: \"\"");
	if (!opts->port)
		return output_usage(
			"--port 0 is for servers only, which print the port they took");
	return STATUS_OK;
}

/*
 * The secret
 */

static int check_secret_length(const char *name, struct peer_secret *secret)
{
	while (secret->length && (secret->bytes[secret->length - 1] == '\n' ||
				  secret->bytes[secret->length - 1] == '\r'))
		secret->length--;
	if (secret->length >= SNT_SECRET_MIN)
		return STATUS_OK;
	return output_failed("create one with: " MAKE_SECRET,
			     "%s: the secret has %zu bytes; %d to %d are needed", name,
			     secret->length, SNT_SECRET_MIN, SNT_SECRET_MAX);
}

int peer_secret_read(const struct peer_opts *opts, struct peer_secret *secret)
{
	const char *name = opts->secret_file;
	struct stat stat;
	ssize_t length;
	char more;
	int fd;

	secret->length = 0;
	if (!name)
		return STATUS_OK;
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return output_failed(NULL, "%s: %s", name, strerror(errno));
	if (!fstat(fd, &stat) && S_ISREG(stat.st_mode) && stat.st_mode & 077)
		output_note("%s is readable by other users; run: chmod 600 %s", name,
			    name);
	while (secret->length < sizeof(secret->bytes) &&
	       (length = read(fd, secret->bytes + secret->length,
			      sizeof(secret->bytes) - secret->length)) > 0)
		secret->length += (size_t)length;
	length = read(fd, &more, 1);
	close(fd);
	if (length > 0 && more != '\n')
		return output_failed(NULL, "%s: a secret has at most %d bytes", name,
				     SNT_SECRET_MAX);
	if (length < 0)
		return output_failed(NULL, "%s: %s", name, strerror(errno));
	return check_secret_length(name, secret);
}

static enum snt_carrier carrier_of(const struct peer_opts *opts)
{
	return opts->carrier ? SNT_CARRIER_TCP : SNT_CARRIER_CM;
}

static void fill_endpoint(const struct peer_opts *opts,
			  const struct peer_secret *secret,
			  struct snt_endpoint *endpoint)
{
	endpoint->port = (uint16_t)opts->port;
	endpoint->carrier = carrier_of(opts);
	endpoint->setup_ns = opts->setup_ns;
	endpoint->detect_ns = opts->detect_ns;
	if (secret->length) {
		endpoint->secret = secret->bytes;
		endpoint->secret_length = secret->length;
	}
}

void peer_target(const struct peer_opts *opts, const struct peer_secret *secret,
		 const char *host, struct snt_endpoint *endpoint)
{
	fill_endpoint(opts, secret, endpoint);
	endpoint->host = host;
	endpoint->source = opts->source;
}

void peer_local(const struct peer_opts *opts, const struct peer_secret *secret,
		struct snt_endpoint *endpoint)
{
	fill_endpoint(opts, secret, endpoint);
	endpoint->host = opts->source;
}

/*
 * The end of a server
 */

volatile sig_atomic_t peer_stopped;

static void note_signal(int number)
{
	peer_stopped = number;
}

static void catch_stop_signals(int flags)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_handler = note_signal, .sa_flags = flags };
	struct sigaction before;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		/* A process that was told to ignore it, as by nohup(1), does so. */
		if (!sigaction(numbers[i], NULL, &before) &&
		    before.sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
}

void peer_catch_signals(void)
{
	catch_stop_signals(0);
	signal(SIGPIPE, SIG_IGN);
}

void peer_catch_first_signal(void)
{
	catch_stop_signals(SA_RESETHAND);
}

/*
 * Words
 */

void peer_say_listening(const struct snt_stream_listener *listener)
{
	uint16_t port = snt_stream_listener_port(listener);
	json_t *addresses = json_array();
	char line[1024] = "", host[SNT_ADDRESS_MAX];
	size_t used = 0;

	for (unsigned i = 0;
	     !snt_stream_listener_address(listener, i, host, sizeof(host)); i++) {
		json_array_append_new(addresses, json_string(host));
		if (used < sizeof(line))
			used += (size_t)snprintf(line + used, sizeof(line) - used,
						 "%s%s", used ? ", " : "", host);
	}
	output_note("listening on port %u%s%s", port, used ? ", devices at " : "",
		    line);
	if (output.json) {
		json_t *object = output_object();

		json_object_set_new(object, "listening", json_integer(port));
		json_object_set(object, "addresses", addresses);
		output_json(object);
	}
	json_decref(addresses);
}

/* Soft devices on loopback addresses, the default, reach no other host. */
static bool is_on_loopback(struct snt_ctx *ctx)
{
	struct snt_gid_info gid = { .size = sizeof(gid) };

	for (unsigned i = 0; i < snt_ctx_device_count(ctx); i++)
		for (uint32_t j = 0;
		     !snt_device_query_gid(snt_ctx_device(ctx, i), j, &gid); j++)
			if (strncmp(gid.text, "127.", 4) && strcmp(gid.text, "::1"))
				return false;
	return true;
}

static const char *advice_on_error(const struct peer_opts *opts, int error,
				   bool on_loopback)
{
	switch (-error) {
	case ECONNREFUSED:
		return "start a server there first: sennit ping --serve, or sennit serve";
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case EHOSTDOWN:
	case ENETUNREACH:
		if (on_loopback)
			return "the devices of this end are on loopback addresses, which reach "
			       "this host only; use --soft-addresses eth0, at both ends";
		if (opts->carrier)
			return "try ping(8), then check the firewalls of both hosts: TCP to this "
			       "port must be allowed";
		return "give the host as an address of one of its RDMA devices (`sennit "
		       "info` there shows them) and allow UDP port 4791 in firewalls; "
		       "--carrier tcp uses ordinary TCP instead";
	case EACCES:
		return "give both ends a --secret-file with the same bytes, or neither";
	case EPROTO:
	case EPROTONOSUPPORT:
		return "compare the versions of both ends: sennit --version";
	default:
		return context_remedy(error);
	}
}

int peer_failed(struct snt_loop *loop, const char *host, const struct peer_opts *opts,
		int error, const char *text)
{
	/* The text may be the last error's, which the next call overwrites. */
	char *why = strdup(*text ? text : strerror(-error));
	bool on_loopback =
		is_on_loopback(snt_loop_ctx(loop)) && strncmp(host, "127.", 4);
	int status = output_failed(advice_on_error(opts, error, on_loopback),
				   "cannot connect to %s port %u: %s", host,
				   (unsigned)opts->port, why ? why : strerror(-error));

	free(why);
	return status;
}
