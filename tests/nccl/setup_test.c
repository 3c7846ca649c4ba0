/* SPDX-License-Identifier: MIT */

/*
 * What NCCL asks before it moves data: devices, handles, connections; and peers that are
 * not what they should be, in place of which the test speaks.
 */

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/test.h"
#include "net_kit.h"
#include "wire.h"

static char handle[NCCL_HANDLE_BYTES];

static struct handle_head *handle_head(void)
{
	return (struct handle_head *)handle;
}

static void *listener(void)
{
	void *listener;

	assert_int_equal(net_listen(0, handle, &listener), 0);
	return listener;
}

/* Calls until it has failed or returned a comm; within bounds. */
static int until_over(int (*call)(void *arg, void **comm), void *arg, void **comm)
{
	const time_t limit = time(NULL) + patience_s(20);
	int ret = 0;

	for (*comm = NULL; !ret && !*comm; sched_yield()) {
		ret = call(arg, comm);
		assert_true(time(NULL) < limit);
	}
	return ret;
}

static int accept_step(void *arg, void **comm)
{
	return net_accept(arg, comm);
}

static int connect_step(void *arg, void **comm)
{
	return net_connect(0, arg, comm);
}

/* A socket connected to the plugin's listener. */
static int dial(void)
{
	const int fd = socket(handle_head()->address.any.sa_family, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, &handle_head()->address.any,
				 sizeof(handle_head()->address.v4)),
			 0);
	return fd;
}

static void say(int fd, const void *data, size_t size)
{
	assert_int_equal(send(fd, data, size, MSG_NOSIGNAL), size);
}

static struct frame_head frame_of(uint32_t version, uint16_t kind, uint16_t length)
{
	struct frame_head frame = {
		.nonce = handle_head()->nonce,
		.version = htonl(version),
		.kind = htons(kind),
		.length = htons(length),
	};

	memcpy(frame.magic, handle_head()->magic, sizeof(frame.magic));
	return frame;
}

static void assert_warning(const char *phrase)
{
	if (!strstr(net_last_warning(), phrase))
		print_error("\"%s\" is not in \"%s\"\n", phrase, net_last_warning());
	assert_non_null(strstr(net_last_warning(), phrase));
}

/* A rank's process, in which the plugin is loaded afresh: the library reads its environment
 * once. */
static int in_child(int (*what)(void))
{
	const pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (!child) {
		/* cmocka's handlers would go on with the parent's tests. */
		signal(SIGSEGV, SIG_DFL);
		signal(SIGBUS, SIG_DFL);
		_exit(what());
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/*
 * Devices
 */

/* The plugin asks where devices are. Soft ones are nowhere, unless a test places them. */
static bool placed;

char *realpath(const char *path, char *resolved)
{
	char place[64];

	assert(!resolved && !strncmp(path, "/sys/class/infiniband/soft", 26));
	if (!placed) {
		errno = ENOENT;
		return NULL;
	}
	snprintf(place, sizeof(place), "/sys/devices/pci0000:00/0000:0%c:00.0",
		 path[26]);
	return strdup(place);
}

/* Of a fused device; returns how many things are not as announced. */
static int check_fused(int version)
{
	struct nccl_props_v12 props, none;
	struct nccl_vdevice self = { .count = 1, .device = { 0 } };
	int count = 0, index = -1;

	net_load(version);
	if (net_init() || net_devices(&count) || net_properties(0, &props))
		return 100;
	if (version >= 9 && (net_make_vdevice(&index, &self) || index != 0))
		return 101;
	if (!net_properties(1, &none) || !net_properties(-1, &none))
		return 102;
	return (count != 1) + !!strcmp(props.name, "soft0+soft1") + !!props.pci_path +
	       !props.guid + (props.ptr_support != NCCL_HOST) + (props.speed != 20000) +
	       (props.max_recvs != 1) + (props.max_comms < 1024) + !!props.device_type +
	       (version >= 9 &&
		(props.vdevice.count != 1 || props.max_p2p_bytes != 1 << 30));
}

#define CHECK_FUSED(version)                 \
	static int check_v##version(void)    \
	{                                    \
		return check_fused(version); \
	}
CHECK_FUSED(8)
CHECK_FUSED(9)
CHECK_FUSED(10)
CHECK_FUSED(11)
CHECK_FUSED(12)

static void one_device_in_every_version(void **state)
{
	(void)state;
	assert_int_equal(in_child(check_v8), 0);
	assert_int_equal(in_child(check_v9), 0);
	assert_int_equal(in_child(check_v10), 0);
	assert_int_equal(in_child(check_v11), 0);
	assert_int_equal(in_child(check_v12), 0);
}

static int check_separate(void)
{
	struct nccl_vdevice both = { .count = 2, .device = { 0, 1 } };
	struct nccl_vdevice twice = { .count = 2, .device = { 1, 1 } };
	struct nccl_vdevice unknown = { .count = 2, .device = { 0, 9 } };
	struct nccl_props_v12 first, second, made;
	int count = 0, index = -1, again = -1;

	setenv("SENNIT_NCCL_FUSE", "off", 1);
	placed = true;
	net_load(11);
	if (net_init() || net_devices(&count) || count != 2)
		return 1;
	if (net_properties(0, &first) || net_properties(1, &second) ||
	    strcmp(first.name, "soft0") || strcmp(second.name, "soft1") ||
	    strcmp(second.pci_path, "/sys/devices/pci0000:00/0000:01:00.0") != 0 ||
	    first.guid == second.guid || second.vdevice.device[0] != 1)
		return 2;
	if (net_make_vdevice(&index, &both) || index != 2 ||
	    net_make_vdevice(&again, &both) || again != 2)
		return 3;
	if (net_devices(&count) || count != 3 || net_properties(2, &made) ||
	    strcmp(made.name, "soft0+soft1") || made.vdevice.count != 2 ||
	    made.vdevice.device[1] != 1)
		return 4;
	if (!net_make_vdevice(&index, &twice) || !net_make_vdevice(&index, &unknown))
		return 5;
	return strstr(net_last_warning(), "device 9 cannot be fused") ? 0 : 6;
}

static void a_device_for_each_nic_and_those_that_nccl_makes(void **state)
{
	(void)state;
	assert_int_equal(in_child(check_separate), 0);
}

/* NCCL attaches such devices to a processor, takes them for ports of one, and does not find
 * again what it has made of them. */
static int check_nowhere(void)
{
	struct nccl_vdevice both = { .count = 2, .device = { 0, 1 } };
	struct nccl_vdevice one = { .count = 1, .device = { 1 } };
	int count = 0, index = -1;

	setenv("SENNIT_NCCL_FUSE", "off", 1);
	net_load(11);
	if (net_init() || net_make_vdevice(&index, &one) || index != 1)
		return 1;
	if (net_make_vdevice(&index, &both) != NCCL_INVALID_USAGE)
		return 2;
	if (net_devices(&count) || count != 2)
		return 3;
	return strstr(net_last_warning(), "soft0 has no PCI address") ? 0 : 4;
}

static void devices_that_are_nowhere_are_not_fused(void **state)
{
	(void)state;
	assert_int_equal(in_child(check_nowhere), 0);
}

static int check_bad_fuse(void)
{
	setenv("SENNIT_NCCL_FUSE", "maybe", 1);
	net_load(11);
	return net_init() == NCCL_INVALID_USAGE &&
			       strstr(net_last_warning(), "use on or off")
		       ? 0
		       : 1;
}

static int check_no_device(void)
{
	setenv("SENNIT_DEVICES", "=nonesuch", 1);
	net_load(11);
	return net_init() == NCCL_SYSTEM_ERROR && strstr(net_last_warning(), "nonesuch")
		       ? 0
		       : 1;
}

static int check_bad_address(void)
{
	void *unused;

	setenv("SENNIT_NCCL_ADDRESS", "nonesuch", 1);
	net_load(11);
	return !net_init() && net_listen(0, handle, &unused) == NCCL_SYSTEM_ERROR &&
			       strstr(net_last_warning(), "SENNIT_NCCL_ADDRESS")
		       ? 0
		       : 1;
}

/* An interface in place of the devices' own addresses. */
static int check_interface(void)
{
	setenv("SENNIT_NCCL_ADDRESS", "lo", 1);
	net_load(11);
	if (net_init())
		return 1;
	net_connect_pair();
	return 0;
}

static void settings_that_are_wrong_say_so(void **state)
{
	(void)state;
	assert_int_equal(in_child(check_bad_fuse), 0);
	assert_int_equal(in_child(check_no_device), 0);
	assert_int_equal(in_child(check_bad_address), 0);
	assert_int_equal(in_child(check_interface), 0);
}

/* The context is destroyed with its last user, and opened again for the next. */
static int check_again(void)
{
	net_load(11);
	for (int i = 0; i < 3; i++) {
		struct net_pair pair;
		int count;

		if (net_init())
			return 1;
		pair = net_connect_pair();
		net_close_send(pair.sender);
		net_close_recv(pair.receiver);
		net_finalize();
		if (net_devices(&count) || count)
			return 2;
	}
	return 0;
}

/* An attempt that NCCL has given up does not keep the context. */
static int check_attempt(void)
{
	void *listener, *comm;
	int count;

	net_load(11);
	if (net_init() || net_listen(0, handle, &listener) ||
	    net_connect(0, handle, &comm) || comm)
		return 1;
	net_close_listen(listener);
	net_finalize();
	return net_devices(&count) || count ? 2 : 0;
}

static void a_connection_that_was_given_up_is_freed(void **state)
{
	(void)state;
	assert_int_equal(in_child(check_attempt), 0);
}

static void init_after_finalize(void **state)
{
	(void)state;
	assert_int_equal(in_child(check_again), 0);
}

/*
 * Peers
 */

static void a_handle_of_another_network_is_refused(void **state)
{
	char foreign[NCCL_HANDLE_BYTES];
	void *comm;

	(void)state;
	memset(foreign, 0x5a, sizeof(foreign));
	assert_int_equal(net_connect(0, foreign, &comm), NCCL_INVALID_USAGE);
	assert_warning("NCCL_NET=sennit");
	assert_null(comm);
}

/* NCCL's own networks connect to the address at the beginning of the handle, and send the
 * number behind it and the kind of their socket. */
static void a_peer_that_uses_another_network_is_refused(void **state)
{
	void *listening = listener(), *comm;
	const uint32_t kind = 4;
	const int fd = dial();

	(void)state;
	say(fd, &handle_head()->nonce, sizeof(handle_head()->nonce));
	assert_int_equal(net_accept(listening, &comm), 0);
	say(fd, &kind, sizeof(kind));
	assert_int_equal(until_over(accept_step, listening, &comm), NCCL_INVALID_USAGE);
	assert_warning("NCCL_NET=sennit");
	net_close_listen(listening);
	close(fd);
}

static void a_stranger_at_the_port_is_ignored(void **state)
{
	void *listening = listener(), *sender = NULL, *receiver = NULL;
	const int fd = dial(), silent = dial();

	(void)state;
	close(silent);
	say(fd, "GET / HTTP/1.1\r\n\r\n", 18);
	while (!sender || !receiver) {
		if (!sender)
			assert_int_equal(net_connect(0, handle, &sender), 0);
		if (!receiver)
			assert_int_equal(net_accept(listening, &receiver), 0);
	}
	assert_non_null(net_info_with("does not know the handle"));
	net_close_send(sender);
	net_close_recv(receiver);
	net_close_listen(listening);
	close(fd);
}

static void a_connecting_peer_of_another_version_is_told(void **state)
{
	void *listening = listener(), *comm;
	const struct frame_head frame = frame_of(9, KIND_CARD, 3);
	struct frame_head answer;
	char text[512] = "";
	const int fd = dial();

	(void)state;
	say(fd, &frame, sizeof(frame));
	say(fd, "abc", 3);
	assert_int_equal(until_over(accept_step, listening, &comm), NCCL_INVALID_USAGE);
	assert_warning("versions 1 and 9");
	assert_int_equal(recv(fd, &answer, sizeof(answer), MSG_WAITALL),
			 sizeof(answer));
	assert_int_equal(ntohs(answer.kind), KIND_REFUSED);
	assert_int_equal(ntohl(answer.version), 1);
	assert_int_equal(recv(fd, text, ntohs(answer.length), MSG_WAITALL),
			 ntohs(answer.length));
	assert_non_null(strstr(text, "versions 1 and 9"));
	net_close_listen(listening);
	close(fd);
}

/* A listener in place of the plugin's, whose handle is in `handle`. */
static int fake_listener(void)
{
	struct handle_head *head = handle_head();
	socklen_t length = sizeof(head->address.v4);
	const int fd = socket(AF_INET, SOCK_STREAM, 0);
	void *real = listener();

	net_close_listen(real);
	head->address.v4.sin_port = 0;
	assert_int_equal(bind(fd, &head->address.any, length), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, &head->address.any, &length), 0);
	return fd;
}

static void a_listening_peer_of_another_version_is_refused(void **state)
{
	const int listening = fake_listener();
	const struct frame_head frame = frame_of(9, KIND_CARD, 0);
	void *comm;
	int fd;

	(void)state;
	assert_int_equal(net_connect(0, handle, &comm), 0);
	fd = accept(listening, NULL, NULL);
	say(fd, &frame, sizeof(frame));
	assert_int_equal(until_over(connect_step, handle, &comm), NCCL_INVALID_USAGE);
	assert_warning("versions 1 and 9");
	close(fd);
	close(listening);
}

static void a_refusal_is_in_the_log_of_the_other_end(void **state)
{
	const int listening = fake_listener();
	const struct frame_head frame = frame_of(1, KIND_REFUSED, 12);
	void *comm;
	int fd;

	(void)state;
	assert_int_equal(net_connect(0, handle, &comm), 0);
	fd = accept(listening, NULL, NULL);
	say(fd, &frame, sizeof(frame));
	say(fd, "not on lanes", 12);
	assert_int_equal(until_over(connect_step, handle, &comm), NCCL_REMOTE_ERROR);
	assert_warning("refused the connection: not on lanes");
	close(fd);
	close(listening);
}

static void a_card_that_is_none_is_refused(void **state)
{
	void *listening = listener(), *comm;
	const struct frame_head frame = frame_of(1, KIND_CARD, 5);
	const int fd = dial();

	(void)state;
	say(fd, &frame, sizeof(frame));
	say(fd, "12345", 5);
	assert_int_equal(until_over(accept_step, listening, &comm), NCCL_SYSTEM_ERROR);
	assert_warning("cannot be connected");
	net_close_listen(listening);
	close(fd);
}

static void a_peer_that_ends_during_the_setup_is_an_error(void **state)
{
	int listening = fake_listener();
	void *comm, *real;
	int fd;

	(void)state;
	assert_int_equal(net_connect(0, handle, &comm), 0);
	fd = accept(listening, NULL, NULL);
	close(fd);
	assert_int_equal(until_over(connect_step, handle, &comm), NCCL_REMOTE_ERROR);
	close(listening);

	real = listener();
	fd = dial();
	say(fd, &handle_head()->nonce, sizeof(handle_head()->nonce));
	close(fd);
	assert_int_equal(until_over(accept_step, real, &comm), NCCL_REMOTE_ERROR);
	assert_warning("ended during the setup");
	net_close_listen(real);
}

static void a_listener_that_is_closed_is_an_error(void **state)
{
	void *comm;

	(void)state;
	net_close_listen(listener());
	assert_int_equal(until_over(connect_step, handle, &comm), NCCL_REMOTE_ERROR);
	assert_warning("Connection refused");
}

/* closeListen() while a peer is half connected. */
static void a_listener_is_closed_in_the_middle(void **state)
{
	void *listening = listener(), *sender = NULL, *receiver;

	(void)state;
	for (int i = 0; i < 100; i++) {
		if (!sender)
			assert_int_equal(net_connect(0, handle, &sender), 0);
		if (i == 50)
			assert_int_equal(net_accept(listening, &receiver), 0);
	}
	net_close_listen(listening);
	if (!sender)
		assert_int_equal(until_over(connect_step, handle, &sender),
				 NCCL_REMOTE_ERROR);
	else
		net_close_send(sender);
}

/*
 * Requests
 */

static void too_many_requests_and_a_message_that_is_too_long(void **state)
{
	struct net_pair pair = net_connect_pair();
	static char data[4096];
	void *sent, *received, *request, *from, *to;
	unsigned posted = 0;
	int done, ret;

	(void)state;
	assert_int_equal(net_reg(pair.sender, data, sizeof(data), &from), 0);
	assert_int_equal(net_reg(pair.receiver, data, sizeof(data), &to), 0);
	assert_int_equal(net_isend(pair.sender, data, 8, from, &sent), 0);
	assert_null(sent);
	for (;; posted++) {
		assert_int_equal(net_irecv(pair.receiver, data, 1000, to, &request), 0);
		if (!request)
			break;
		received = request;
	}
	assert_int_equal(posted, NCCL_REQUESTS_MAX);
	assert_int_equal(net_test(received, &done, NULL), 0);
	assert_int_equal(done, 0);
	do {
		ret = net_isend(pair.sender, data, 1001, from, &sent);
	} while (!ret && !sent);
	assert_int_equal(ret, NCCL_INVALID_USAGE);
	assert_warning("1001 bytes is longer than the receive of 1000 bytes");
	assert_int_equal(net_isend(pair.sender, data, 1, from, &sent),
			 NCCL_INVALID_USAGE);
	assert_int_equal(net_dereg(pair.sender, from), 0);
	assert_int_equal(net_dereg(pair.receiver, to), 0);
	net_close_recv(pair.receiver);
	net_close_send(pair.sender);
}

static void messages_that_arrived_before_the_sender_closed_are_received(void **state)
{
	struct net_pair pair = net_connect_pair();
	static char data[4096], got[4096];
	void *request[8], *sent, *from, *to;
	int done, size;

	(void)state;
	assert_int_equal(net_reg(pair.sender, data, sizeof(data), &from), 0);
	assert_int_equal(net_reg(pair.receiver, got, sizeof(got), &to), 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(net_irecv(pair.receiver, got + i, 1, to, &request[i]),
				 0);
	for (int i = 0; i < 8; i++) {
		data[i] = 'a' + i;
		for (sent = NULL; !sent;)
			assert_int_equal(net_isend(pair.sender, data + i, 1, from,
						   &sent),
					 0);
		for (done = 0; !done;)
			assert_int_equal(net_test(sent, &done, &size), 0);
	}
	net_close_send(pair.sender);
	for (int i = 0; i < 8; i++) {
		for (done = 0; !done;)
			assert_int_equal(net_test(request[i], &done, &size), 0);
		assert_int_equal(size, 1);
	}
	assert_memory_equal(got, "abcdefgh", 8);
	net_close_recv(pair.receiver);
	assert_int_equal(net_dereg(NULL, from), 0);
	assert_int_equal(net_dereg(NULL, to), 0);
}

static bool loaded;

/* Not before the tests with processes of their own are over. */
static int load(void **state)
{
	(void)state;
	if (loaded)
		return 0;
	net_load(11);
	loaded = true;
	return net_init();
}

static int unload(void **state)
{
	(void)state;
	if (loaded)
		net_finalize();
	return 0;
}

#define PEER_TEST(name) cmocka_unit_test_setup(name, load)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_device_in_every_version),
		cmocka_unit_test(a_device_for_each_nic_and_those_that_nccl_makes),
		cmocka_unit_test(devices_that_are_nowhere_are_not_fused),
		cmocka_unit_test(settings_that_are_wrong_say_so),
		cmocka_unit_test(init_after_finalize),
		cmocka_unit_test(a_connection_that_was_given_up_is_freed),
		PEER_TEST(a_handle_of_another_network_is_refused),
		PEER_TEST(a_peer_that_uses_another_network_is_refused),
		PEER_TEST(a_stranger_at_the_port_is_ignored),
		PEER_TEST(a_connecting_peer_of_another_version_is_told),
		PEER_TEST(a_listening_peer_of_another_version_is_refused),
		PEER_TEST(a_refusal_is_in_the_log_of_the_other_end),
		PEER_TEST(a_card_that_is_none_is_refused),
		PEER_TEST(a_peer_that_ends_during_the_setup_is_an_error),
		PEER_TEST(a_listener_that_is_closed_is_an_error),
		PEER_TEST(a_listener_is_closed_in_the_middle),
		PEER_TEST(too_many_requests_and_a_message_that_is_too_long),
		PEER_TEST(messages_that_arrived_before_the_sender_closed_are_received),
	};

	return cmocka_run_group_tests(tests, NULL, unload);
}
