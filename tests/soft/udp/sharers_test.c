/* SPDX-License-Identifier: MIT */
/*
 * Sharers of an address: here several devices of one process, each of which joins as another
 * process would. sharers_killed_test.c has real ones.
 */
#include "lib/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev/cm.h"
#include "dev/soft/cm.h"
#include "dev/soft/cm_wire.h"
#include "dev/soft/core.h"
#include "dev/soft/icrc.h"
#include "lib/fds.h"
#include "lib/loopback.h"
#include "lib/patience.h"
#include "lib/shm_kit.h"
#include "lib/udp_side.h"

#define SHARERS 4
#define PORT	7000

static const struct snt__udp_opts by_socket = { .join = true };
static const struct snt__udp_opts by_memory = { .join = true, .shm = true };

static unsigned seat_of(const struct side *side)
{
	return side->device->share.seat.number;
}

static void connect_sides(struct side *a, struct side *b)
{
	side_connect(a, b, IBV_MTU_4096);
	side_connect(b, a, IBV_MTU_4096);
}

static void talk(struct side *a, struct side *b)
{
	side_check(a, b, 1);
	side_check(b, a, 10000);
	side_check(a, b, SIDE_BYTES / 2);
}

static void open_sharers(struct side *side, unsigned count,
			 const struct snt__udp_opts *opts)
{
	for (unsigned i = 0; i < count; i++)
		side_open(&side[i], 1, opts);
}

static void close_sharers(struct side *side, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		side_close(&side[i]);
}

/* With each other, and with a device elsewhere. */
static void exchange_data(const struct snt__udp_opts *opts)
{
	struct side side[SHARERS], other;
	unsigned fds = count_fds();

	open_sharers(side, SHARERS, opts);
	side_open(&other, 2, opts);
	for (unsigned i = 0; i < SHARERS; i++) {
		assert_int_equal(snt__seat_of_qpn(side[i].qp->qp_num),
				 seat_of(&side[i]));
		for (unsigned j = 0; j < i; j++)
			assert_int_not_equal(seat_of(&side[i]), seat_of(&side[j]));
	}
	connect_sides(&side[0], &side[1]);
	connect_sides(&side[2], &other);
	talk(&side[0], &side[1]);
	talk(&side[2], &other);
	talk(&side[1], &side[0]);
	side_connect(&side[3], &side[3], IBV_MTU_4096);
	side_check(&side[3], &side[3], 10000);
	close_sharers(side, SHARERS);
	side_close(&other);
	assert_int_equal(count_fds(), fds);
}

static void by_sockets(void **state)
{
	(void)state;
	exchange_data(&by_socket);
}

static void by_rings(void **state)
{
	struct side side[2];

	(void)state;
	exchange_data(&by_memory);
	open_sharers(side, 2, &by_memory);
	connect_sides(&side[0], &side[1]);
	talk(&side[0], &side[1]);
	assert_int_equal(shm_stats(&side[0]).links_out, 1);
	assert_int_equal(shm_stats(&side[1]).links_in, 1);
	assert_int_equal(snt__udp_device_path(side[0].device, side[0].qp),
			 SNT_PATH_SHM);
	close_sharers(side, 2);
}

/* Its socket stays in the group, or the kernel would number the others anew. */
static void the_first_one_leaves(void **state)
{
	struct side side[SHARERS + 1];

	(void)state;
	open_sharers(side, SHARERS - 1, &by_socket);
	connect_sides(&side[1], &side[2]);
	talk(&side[1], &side[2]);
	side_close(&side[0]);
	talk(&side[1], &side[2]);
	for (unsigned i = 0; i < 2; i++) {
		open_sharers(&side[SHARERS - 1], 2, &by_socket);
		connect_sides(&side[SHARERS - 1], &side[SHARERS]);
		talk(&side[SHARERS - 1], &side[SHARERS]);
		talk(&side[1], &side[2]);
		close_sharers(&side[SHARERS - 1], 2);
	}
	close_sharers(&side[1], 2);
	/* All are gone: it is an address like any other. */
	side_open(&side[0], 1, NULL);
	assert_int_equal(side[0].device->share.vault, -1);
	side_close(&side[0]);
}

static void send_to_seat(unsigned seat)
{
	struct snt__udp_address address = side_address(1);
	const uint8_t packet[12] = { [5] = (uint8_t)(seat << 2) };
	union snt__udp_sockaddr to;
	socklen_t size = snt__udp_sockaddr(address.gid, 0, 4791, &to);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_int_equal(sendto(fd, packet, sizeof(packet), 0, &to.any, size),
			 sizeof(packet));
	close(fd);
}

static bool has_packet(int fd)
{
	char byte;

	return recv(fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* Whichever process has left, each seat that is free has its own socket. */
static void every_seat_is_found(void **state)
{
	struct snt__share_group group;
	struct side side[3];

	(void)state;
	open_sharers(side, 3, &by_socket);
	close_sharers(side, 2);
	assert_success(snt__share_group_open(side[2].device->share.vault, &group));
	for (unsigned i = 0; i < SNT__SEATS; i++) {
		unsigned seat = (group.base + i) % SNT__SEATS;

		if (i == SNT__SHARE_LOBBY || seat == seat_of(&side[2]))
			continue;
		assert_false(has_packet(group.sockets[i]));
		send_to_seat(seat);
		assert_true(has_packet(group.sockets[i]));
	}
	snt__share_group_close(&group);
	side_close(&side[2]);
}

static bool has_fds(rlim_t count)
{
	struct rlimit limit;

	assert_success(getrlimit(RLIMIT_NOFILE, &limit));
	return limit.rlim_cur >= count;
}

/* The last seat goes to the 63rd; then there is a sentence. */
static void there_are_so_many_seats(void **state)
{
	struct snt__udp_address address = side_address(1);
	struct snt__udp_opts opts = by_socket;
	struct snt__udp_device *device[SNT__SEATS];
	struct side side[2];
	unsigned count = 0;
	int ret;

	(void)state;
	if (!has_fds(1024))
		skip_because("63 devices need more file descriptors");
	opts.name = "one";
	opts.address = &address;
	opts.config.qp_max = 16;
	while (!(ret = snt__udp_device_create(&opts, &device[count])))
		assert_true(++count < SNT__SEATS);
	assert_error(ret, EUSERS, "too many");
	assert_int_equal(count, SNT__SEATS - 1);
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt__udp_device_destroy(device[--count]));
	open_sharers(side, 2, &by_socket);
	connect_sides(&side[0], &side[1]);
	talk(&side[0], &side[1]);
	close_sharers(side, 2);
	while (count)
		assert_success(snt__udp_device_destroy(device[--count]));
}

/* A device that is opened for itself alone, as for the default pair of addresses, does not
 * join. */
static void an_address_for_itself(void **state)
{
	struct snt__udp_address address = side_address(1);
	struct snt__udp_opts opts = { .name = "alone", .address = &address };
	struct snt__udp_device *device;
	struct side side;

	(void)state;
	side_open(&side, 1, NULL);
	assert_int_equal(snt__udp_device_create(&opts, &device), -EADDRINUSE);
	opts.join = true;
	assert_success(snt__udp_device_create(&opts, &device));
	assert_success(snt__udp_device_destroy(device));
	side_close(&side);
}

/*
 * Connections
 */

static const struct snt__cm_table *const table = &snt__cm_soft;

static struct snt__cm *open_manager(const struct side *side)
{
	struct snt__cm_device on = { .context = side->context, .port = 1 };
	struct snt__cm_opts opts = { .devices = &on, .device_count = 1 };
	struct snt__cm *cm;

	assert_success(table->open(&opts, &cm));
	return cm;
}

static struct sockaddr_in port_at(const struct side *side, uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };

	memcpy(&to.sin_addr, side->device->address.gid + 12, 4);
	return to;
}

static int start_listener(struct snt__cm *cm, const struct side *side, uint16_t port,
			  struct snt__cm_id **id_out)
{
	struct sockaddr_in at = port_at(side, port);

	return table->listen(cm, (struct sockaddr *)&at, 0, id_out);
}

static struct snt__cm_event expect(struct snt__cm *cm, enum snt__cm_event_type type)
{
	struct pollfd wait = { .fd = table->fd(cm), .events = POLLIN };
	struct snt__cm_event event;

	assert_int_equal(poll(&wait, 1, (int)patience_s(30) * 1000), 1);
	assert_success(table->next_event(cm, &event));
	assert_int_equal(event.type, type);
	return event;
}

static struct snt__cm_id *start_connect(struct snt__cm *cm, const struct side *from,
					const struct side *to, uint16_t port)
{
	struct sockaddr_in target = port_at(to, port);
	struct snt__cm_param param = { .qpn = from->qp->qp_num };
	struct snt__cm_id *id;

	assert_success(table->resolve(cm, NULL, (struct sockaddr *)&target, 1, &id));
	expect(cm, SNT__CM_EVENT_RESOLVED);
	assert_success(table->connect(id, &param));
	return id;
}

static void accept_request(struct snt__cm *cm, struct snt__cm_id *id,
			   const struct side *side)
{
	struct snt__cm_param param = { .qpn = side->qp->qp_num };

	(void)cm;
	assert_success(table->accept(id, &param));
}

/* A whole connection; which sharer gets the request is the caller's to say. */
static void meet_and_part(struct snt__cm *client, const struct side *from,
			  struct snt__cm *server, const struct side *at, uint16_t port)
{
	struct snt__cm_id *ours = start_connect(client, from, at, port);
	struct snt__cm_id *theirs = expect(server, SNT__CM_EVENT_REQUEST).id;

	accept_request(server, theirs, at);
	assert_ptr_equal(expect(client, SNT__CM_EVENT_RESPONSE).id, ours);
	assert_success(table->establish(ours));
	assert_ptr_equal(expect(server, SNT__CM_EVENT_ESTABLISHED).id, theirs);
	assert_success(table->disconnect(theirs));
	expect(client, SNT__CM_EVENT_DISCONNECTED);
	expect(server, SNT__CM_EVENT_DISCONNECTED);
	table->destroy(ours);
	table->destroy(theirs);
}

static void ports_are_found(const struct snt__udp_opts *opts)
{
	struct side side[3], other;
	struct snt__cm *cm[3], *client;
	struct snt__cm_id *listener[3], *id;

	open_sharers(side, 3, opts);
	side_open(&other, 2, opts);
	client = open_manager(&other);
	for (unsigned i = 0; i < 3; i++) {
		cm[i] = open_manager(&side[i]);
		assert_success(start_listener(cm[i], &side[i], PORT + i, &listener[i]));
	}
	for (unsigned i = 0; i < 6; i++)
		meet_and_part(client, &other, cm[i % 3], &side[i % 3], PORT + i % 3);
	for (unsigned i = 0; i < 3; i++)
		meet_and_part(cm[i], &side[i], cm[(i + 1) % 3], &side[(i + 1) % 3],
			      PORT + (i + 1) % 3);
	id = start_connect(client, &other, &side[0], PORT + 3);
	assert_int_equal(expect(client, SNT__CM_EVENT_REJECTED).reason,
			 SNT__CM_REASON_NOBODY_LISTENS);
	table->destroy(id);
	for (unsigned i = 0; i < 3; i++) {
		table->destroy(listener[i]);
		assert_success(table->close(cm[i]));
	}
	assert_success(table->close(client));
	close_sharers(side, 3);
	side_close(&other);
}

static void ports_are_found_by_sockets(void **state)
{
	(void)state;
	ports_are_found(&by_socket);
}

static void ports_are_found_by_memory(void **state)
{
	(void)state;
	ports_are_found(&by_memory);
}

static void a_port_has_one_listener(void **state)
{
	struct snt__cm_id *first, *second;
	struct snt__cm *cm[2];
	struct side side[2];

	(void)state;
	open_sharers(side, 2, &by_socket);
	for (unsigned i = 0; i < 2; i++)
		cm[i] = open_manager(&side[i]);
	assert_success(start_listener(cm[0], &side[0], PORT, &first));
	assert_error(start_listener(cm[1], &side[1], PORT, &second), EADDRINUSE,
		     "port 7000: Address already in use");
	assert_success(start_listener(cm[1], &side[1], PORT + 1, &second));
	table->destroy(second);
	table->destroy(first);
	assert_success(start_listener(cm[1], &side[1], PORT, &second));
	table->destroy(second);
	/* Any that is free. */
	assert_success(start_listener(cm[0], &side[0], 0, &first));
	assert_success(start_listener(cm[1], &side[1], 0, &second));
	/* A sharer that goes leaves its ports to the others. */
	table->destroy(first);
	table->destroy(second);
	for (unsigned i = 0; i < 2; i++)
		assert_success(table->close(cm[i]));
	close_sharers(side, 2);
}

/* A program that accepts one connection closes its listener first. If the request comes again,
 * because the answer takes time, a sharer without the listener must not refuse it. */
static void a_request_outlives_its_listener(void **state)
{
	struct snt__cm_id *listener, *ours, *theirs;
	struct snt__soft_cm *machine;
	struct snt__cm *cm, *client;
	struct side side[2], other;
	uint64_t duplicates = 0;

	(void)state;
	open_sharers(side, 2, &by_socket);
	side_open(&other, 2, &by_socket);
	cm = open_manager(&side[0]);
	client = open_manager(&other);
	assert_success(start_listener(cm, &side[0], PORT, &listener));
	ours = start_connect(client, &other, &side[0], PORT);
	theirs = expect(cm, SNT__CM_EVENT_REQUEST).id;
	table->destroy(listener);
	machine = side[0].device->core->mads.arg;
	while (!duplicates) {
		snt__udp_lock(side[0].device);
		duplicates = machine->stats.duplicates;
		snt__udp_unlock(side[0].device);
	}
	assert_non_null(side[0].device->share.claims);
	accept_request(cm, theirs, &side[0]);
	expect(client, SNT__CM_EVENT_RESPONSE);
	assert_success(table->establish(ours));
	expect(cm, SNT__CM_EVENT_ESTABLISHED);
	assert_null(side[0].device->share.claims);
	table->destroy(ours);
	table->destroy(theirs);
	assert_success(table->close(cm));
	assert_success(table->close(client));
	close_sharers(side, 2);
	side_close(&other);
}

/*
 * Those that are not sharers
 */

static socklen_t door_name(const struct side *side, struct sockaddr_un *name)
{
	socklen_t size = sizeof(*name);

	assert_success(
		getsockname(side->device->share.door, (struct sockaddr *)name, &size));
	return size;
}

static int open_again(struct snt__udp_device **device_out)
{
	struct snt__udp_address address = side_address(1);
	struct snt__udp_opts opts = by_socket;

	opts.name = "again";
	opts.address = &address;
	return snt__udp_device_create(&opts, device_out);
}

/* In a child that answers at the door with that. */
static pid_t be_at_door(const struct sockaddr_un *name, socklen_t size,
			uint32_t version, int32_t error)
{
	const int32_t welcome[2] = { (int32_t)version, error };
	int ready[2], fd, with;
	pid_t child;
	char byte;

	assert_success(pipe(ready));
	child = fork();
	if (child) {
		close(ready[1]);
		assert_int_equal(read(ready[0], &byte, 1), 1);
		close(ready[0]);
		return child;
	}
	fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	if (bind(fd, (struct sockaddr *)name, size) || listen(fd, 4) ||
	    write(ready[1], "", 1) != 1)
		_exit(1);
	with = accept(fd, NULL, NULL);
	if (with < 0 || send(with, welcome, sizeof(welcome), 0) != sizeof(welcome))
		_exit(1);
	_exit(0);
}

static void end_child(pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void another_version_is_named(void **state)
{
	struct snt__udp_device *device;
	struct sockaddr_un name;
	struct side side;
	socklen_t size;
	pid_t child;

	(void)state;
	side_open(&side, 1, &by_socket);
	size = door_name(&side, &name);
	side_close(&side);
	child = be_at_door(&name, size, 12345, 0);
	assert_error(open_again(&device), EPROTONOSUPPORT, "another version of sennit");
	end_child(child);
	child = be_at_door(&name, size, 1, EMFILE);
	assert_error(open_again(&device), ETOOMANYREFS, "ulimit -n");
	end_child(child);
}

/* A group of 64 sockets takes as many fds, for a moment, of the first process and of each that
 * joins. Without them the first goes on alone. */
static void fds_run_out(void **state)
{
	struct snt__udp_device *device;
	struct side side[2];
	struct rlimit limit, low;
	unsigned fds;

	(void)state;
	side_open(&side[0], 1, &by_socket);
	side_open(&side[1], 2, &by_socket);
	connect_sides(&side[0], &side[1]);
	fds = count_fds();
	assert_success(getrlimit(RLIMIT_NOFILE, &limit));
	low = limit;
	low.rlim_cur = fds + 30;
	assert_success(setrlimit(RLIMIT_NOFILE, &low));
	assert_error(open_again(&device), ETOOMANYREFS, "ulimit -n");
	talk(&side[0], &side[1]);
	assert_success(setrlimit(RLIMIT_NOFILE, &limit));
	assert_int_equal(count_fds(), fds);
	assert_success(open_again(&device));
	assert_success(snt__udp_device_destroy(device));
	/* The group is there, and the next one has no room. */
	assert_success(setrlimit(RLIMIT_NOFILE, &low));
	assert_error(open_again(&device), ETOOMANYREFS, "ulimit -n");
	assert_success(setrlimit(RLIMIT_NOFILE, &limit));
	talk(&side[0], &side[1]);
	sides_close(side);
}

/* What any user may send to a name: nothing of it reaches the transport. */
static void mail_is_checked(void **state)
{
	struct sockaddr_un name;
	socklen_t size = sizeof(name);
	uint8_t bytes[5000] = { 0 };
	struct side side[2];
	uint64_t before;
	int fd;

	(void)state;
	open_sharers(side, 2, &by_socket);
	connect_sides(&side[0], &side[1]);
	assert_success(getsockname(side[0].device->share.mailbox,
				   (struct sockaddr *)&name, &size));
	before = side_stats(&side[0]).packets_in;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	for (size_t length = 0; length <= sizeof(bytes); length += length / 2 + 1)
		assert_int_equal(sendto(fd, bytes, length, 0, (struct sockaddr *)&name,
					size),
				 length);
	/* They are read before the socket is next polled. */
	snt__udp_lock(side[0].device);
	snt__udp_share_serve(side[0].device);
	snt__udp_unlock(side[0].device);
	assert_int_equal(side_stats(&side[0]).packets_in, before);
	talk(&side[0], &side[1]);
	close(fd);
	close_sharers(side, 2);
}

/* A message for QP 1 from the address of @from, which has no device. */
static size_t make_mad(const struct snt__udp_address *from, const struct side *to,
		       const struct snt__cm_message *message, uint8_t *bytes)
{
	uint8_t mad[SNT__CM_MAD_SIZE];
	struct snt__wire_packet packet = { .opcode = 0x64, /* UD SEND only */
					   .pkey = 0xffff,
					   .qpn = 1,
					   .psn = 1,
					   .payload_length = sizeof(mad) };
	struct iovec payload = { mad, sizeof(mad) };
	struct snt__icrc_ipv4 header = { 0, SNT__ICRC_DONT_FRAGMENT };
	struct snt__icrc_flow flow;
	size_t size;

	packet.datagram.qkey = SNT__WIRE_GSI_QKEY;
	packet.datagram.source_qpn = 1;
	snt__cm_encode(message, mad);
	size = snt__wire_encode(&packet, bytes);
	snt__icrc_flow_init(&flow, from->gid, to->device->address.gid, 4791, 4791);
	memcpy(bytes + size, mad, sizeof(mad));
	return size + sizeof(mad) +
	       snt__icrc_seal(&flow, header, bytes, size, &payload, 1,
			      bytes + size + sizeof(mad));
}

static uint64_t packets_taken(struct side *side, unsigned count)
{
	uint64_t taken = 0;

	for (unsigned i = 0; i < count; i++)
		taken += side_stats(&side[i]).packets_in;
	return taken;
}

/* With what its sender has passed on, whatever that was. */
static void read_all_mail(struct side *side, unsigned count)
{
	for (unsigned i = 0; i < 2 * count; i++) {
		snt__udp_lock(side[i % count].device);
		snt__udp_share_serve(side[i % count].device);
		snt__udp_unlock(side[i % count].device);
	}
}

/* Anyone may send it; if all sharers answered, that would be many packets for one. */
static void a_message_without_an_id_reaches_one_sharer(void **state)
{
	struct snt__udp_address stranger = side_address(2);
	const struct snt__cm_message message = { .kind = SNT__CM_DREQ,
						 .local_id = 0x12345678 };
	uint64_t end = snt__udp_now() + patience_ns(30);
	struct snt__cm *cm[SHARERS];
	struct side side[SHARERS];
	union snt__udp_sockaddr from, to;
	uint8_t bytes[512];
	socklen_t size;
	size_t length;
	int fd;

	(void)state;
	open_sharers(side, SHARERS, &by_socket);
	for (unsigned i = 0; i < SHARERS; i++)
		cm[i] = open_manager(&side[i]);
	length = make_mad(&stranger, &side[0], &message, bytes);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	size = snt__udp_sockaddr(stranger.gid, 0, 4791, &from);
	assert_success(bind(fd, &from.any, size));
	size = snt__udp_sockaddr(side[0].device->address.gid, 0, 4791, &to);
	assert_int_equal(sendto(fd, bytes, length, 0, &to.any, size), length);
	while (!packets_taken(side, SHARERS))
		assert_true(snt__udp_now() < end);
	read_all_mail(side, SHARERS);
	assert_int_equal(packets_taken(side, SHARERS), 1);
	close(fd);
	for (unsigned i = 0; i < SHARERS; i++)
		table->close(cm[i]);
	close_sharers(side, SHARERS);
}

/* A seat's socket outlives the process that had it, and so does what it had not read. */
static void a_seat_is_cleared(void **state)
{
	struct side side[2];
	struct snt__udp_address address = side_address(1);
	struct snt__udp_opts opts = by_socket;
	struct snt__share_group group;
	struct snt__udp_device *device[SNT__SEATS];
	unsigned seat, index, count = 0;

	(void)state;
	if (!has_fds(1024))
		skip_because("63 devices need more file descriptors");
	open_sharers(side, 2, &by_socket);
	seat = seat_of(&side[1]);
	side_close(&side[1]);
	send_to_seat(seat);
	assert_success(snt__share_group_open(side[0].device->share.vault, &group));
	index = (seat - group.base) % SNT__SEATS;
	assert_true(has_packet(group.sockets[index]));
	/* Until one has the seat. */
	opts.name = "next";
	opts.address = &address;
	opts.config.qp_max = 16;
	do
		assert_success(snt__udp_device_create(&opts, &device[count]));
	while (device[count++]->share.seat.number != seat);
	assert_false(has_packet(group.sockets[index]));
	snt__share_group_close(&group);
	while (count)
		assert_success(snt__udp_device_destroy(device[--count]));
	side_close(&side[0]);
}

/* Not under ThreadSanitizer, which does not let a child have threads. */
static bool may_have_threads(void)
{
#ifdef __SANITIZE_THREAD__
	return false;
#else
	return true;
#endif
}

/* A child has no part in what its parent shares, and may take part itself. */
static void a_child_has_no_part(void **state)
{
	struct side side[2];
	int status;
	pid_t child;

	(void)state;
	open_sharers(side, 2, &by_socket);
	connect_sides(&side[0], &side[1]);
	child = fork();
	if (!child) {
		struct snt__udp_device *device;

		if (side[0].device->share.door >= 0 || side[1].device->share.vault >= 0)
			_exit(1);
		if (may_have_threads() &&
		    (open_again(&device) || snt__udp_device_destroy(device)))
			_exit(2);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	talk(&side[0], &side[1]);
	close_sharers(side, 2);
}

static int leave_failed(void **state)
{
	(void)state;
	sides_leave_failed();
	return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, leave_failed)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(by_sockets),
		TEST(by_rings),
		TEST(the_first_one_leaves),
		TEST(every_seat_is_found),
		TEST(there_are_so_many_seats),
		TEST(an_address_for_itself),
		TEST(ports_are_found_by_sockets),
		TEST(ports_are_found_by_memory),
		TEST(a_port_has_one_listener),
		TEST(a_request_outlives_its_listener),
		TEST(another_version_is_named),
		TEST(fds_run_out),
		TEST(mail_is_checked),
		TEST(a_message_without_an_id_reaches_one_sharer),
		TEST(a_seat_is_cleared),
		TEST(a_child_has_no_part),
	};

	return cmocka_run_group_tests_name("udp_sharers", tests, NULL, NULL);
}
