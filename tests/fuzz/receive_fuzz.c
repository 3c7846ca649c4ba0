/* SPDX-License-Identifier: MIT */
/*
 * What a kernel may hand to the udp driver: messages of any size, several datagrams joined
 * into one or not, whatever the control messages say, from anybody. The input is a list of
 * messages; those that are to get further than the ICRC are sealed here.
 *
 * Besides what sanitizers see: bytes outside of registered memory never change, each
 * message is counted, and no more packets come out of it than it has bytes.
 */
#include <assert.h>
#include <errno.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>

#include "dev/soft/device.h"
#include "dev/soft/udp/receive.h"
#include "lib/rc.h"

#define MEMORY	4096
#define GUARDED 64 /* on both sides of what is registered */
#define GUARD	0xa5
#define ACCESS                                                                       \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the first byte of a message says; the upper two bits are for its source. */
enum {
	SEALED = 1 << 0,
	JOINED = 1 << 1, /* the next two bytes say how large each is */
	OTHER_CONTROL = 1 << 2,
	TRUNCATED = 1 << 3,
	CONTROL_TRUNCATED = 1 << 4,
	TWICE_AS_LARGE = 1 << 5, /* the size of the joined has its upper half set */
	SOURCES = 6,
};

static struct bed {
	const uint8_t *data; /* what is left of the input */
	size_t size;
	uint64_t random;
	const struct snt_control *control;
	struct snt__soft_device *device;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t memory[MEMORY];
	struct snt__udp_socket socket;
	struct snt__udp_address address;
	struct snt__udp_receiver receiver;
	uint64_t bytes; /* that were handed out */
} bed;

static uint8_t take(void)
{
	if (!bed.size)
		return 0;
	bed.size--;
	return *bed.data++;
}

static unsigned take16(void)
{
	unsigned high = take();

	return high << 8 | take();
}

/*
 * The kernel
 */

static union snt__udp_sockaddr source(unsigned what)
{
	static const uint8_t gid[4][16] = {
		{ [10] = 0xff, 0xff, 10, 0, 0, 2 }, /* the peer */
		{ [10] = 0xff, 0xff, 10, 0, 0, 2 },
		{ [10] = 0xff, 0xff, 192, 0, 2, 1 },
		{ 0xfd, [15] = 2 },
	};
	union snt__udp_sockaddr name;

	snt__udp_sockaddr(gid[what], 0, what == 1 ? 0xc123 : SNT__WIRE_PORT, &name);
	return name;
}

static void add_control(struct msghdr *header, int type, int value)
{
	struct cmsghdr *control = header->msg_control;

	if (header->msg_controllen < CMSG_SPACE(sizeof(value)))
		return;
	control->cmsg_level = IPPROTO_UDP;
	control->cmsg_type = type;
	control->cmsg_len = CMSG_LEN(sizeof(value));
	memcpy(CMSG_DATA(control), &value, sizeof(value));
	header->msg_controllen = CMSG_SPACE(sizeof(value));
}

/* For our QP, and with an ICRC that is right. */
static void seal(const union snt__udp_sockaddr *from, uint8_t *bytes, size_t size,
		 unsigned number)
{
	struct snt__icrc_ipv4 ipv4 = { (uint16_t)number, SNT__ICRC_DONT_FRAGMENT };
	struct iovec payload = { .iov_base = bytes + 12 };
	uint8_t header[SNT__WIRE_HEADER_MAX], gid[16];
	struct snt__icrc_flow flow;

	if (size < 12 + SNT__ICRC_SIZE || size % 4)
		return;
	bytes[1] &= 0xf0;
	bytes[2] = bytes[3] = 0xff;
	bytes[5] = (uint8_t)(bed.qp->qp_num >> 16);
	bytes[6] = (uint8_t)(bed.qp->qp_num >> 8);
	bytes[7] = (uint8_t)bed.qp->qp_num;
	memcpy(header, bytes, 12);
	payload.iov_len = size - 12 - SNT__ICRC_SIZE;
	snt__udp_gid(from, gid);
	snt__icrc_flow_init(&flow, gid, bed.address.gid,
			    from->any.sa_family == AF_INET ? ntohs(from->v4.sin_port)
							   : ntohs(from->v6.sin6_port),
			    SNT__WIRE_PORT);
	snt__icrc_seal(&flow, ipv4, header, 12, &payload, 1,
		       bytes + size - SNT__ICRC_SIZE);
}

static void seal_all(const union snt__udp_sockaddr *from, uint8_t *bytes, size_t length,
		     size_t each)
{
	unsigned number = 0;

	if (!each || each > length)
		each = length;
	for (size_t at = 0; at < length; at += each)
		seal(from, bytes + at, each < length - at ? each : length - at,
		     number++);
}

static void make_message(struct mmsghdr *message)
{
	struct msghdr *header = &message->msg_hdr;
	uint8_t *bytes = header->msg_iov->iov_base;
	unsigned how = take(), joined = how & JOINED ? take16() : 0;
	union snt__udp_sockaddr from = source(how >> SOURCES);
	size_t length = take16();

	if (length > bed.size)
		length = bed.size;
	memcpy(bytes, bed.data, length);
	bed.data += length;
	bed.size -= length;
	if (how & SEALED)
		seal_all(&from, bytes, length, joined);
	header->msg_flags = (how & TRUNCATED ? MSG_TRUNC : 0) |
			    (how & CONTROL_TRUNCATED ? MSG_CTRUNC : 0);
	memcpy(header->msg_name, &from, sizeof(from));
	if (how & JOINED)
		add_control(header, how & OTHER_CONTROL ? UDP_SEGMENT : UDP_GRO,
			    (int)(joined | (how & TWICE_AS_LARGE ? 0xffff0000u : 0)));
	else
		header->msg_controllen = 0;
	message->msg_len = (unsigned)length;
	bed.bytes += length;
}

int __wrap_snt__udp_recvmmsg(int fd, struct mmsghdr *messages, unsigned count,
			     int flags);
int __wrap_snt__udp_recvmmsg(int fd, struct mmsghdr *messages, unsigned count,
			     int flags)
{
	unsigned want = 1 + take() % count, made = 0;

	(void)fd;
	(void)flags;
	while (made < want && bed.size)
		make_message(&messages[made++]);
	errno = EAGAIN;
	return made ? (int)made : -1;
}

/*
 * The device
 */

static void fill_random(void *arg, void *buffer, size_t length)
{
	uint8_t *to = buffer;

	(void)arg;
	for (size_t i = 0; i < length; i++)
		to[i] = (bed.random = bed.random * 6364136223846793005u + 1) >> 56;
}

static void kick(void *arg)
{
	(void)arg;
}

static const struct snt__soft_driver driver = { .random = fill_random, .kick = kick };

static int connect_qp(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = ACCESS,
		.path_mtu = IBV_MTU_256,
		.dest_qp_num = 77,
		.max_dest_rd_atomic = 2,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	union snt__udp_sockaddr peer = source(0);
	int ret;

	snt__udp_gid(&peer, attr.ah_attr.grh.dgid.raw);
	ret = bed.control->modify_qp(bed.qp, &attr, rc_mask(IBV_QPS_INIT));
	attr.qp_state = IBV_QPS_RTR;
	return ret ? ret : bed.control->modify_qp(bed.qp, &attr, rc_mask(IBV_QPS_RTR));
}

static void open_bed(void)
{
	static const uint8_t gid[1][16] = { { [10] = 0xff, 0xff, 10, 0, 0, 1 } };
	const struct snt__soft_config config = { .name = "fuzz",
						 .driver = &driver,
						 .gids = gid,
						 .gid_count = 1,
						 .qp_max = 1 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_context *context;
	int ret = snt__soft_device_create(&config, &bed.device);

	assert(!ret);
	bed.control = snt__soft_control();
	context = snt__soft_device_context(bed.device);
	memcpy(bed.address.gid, gid[0], 16);
	memset(bed.memory, GUARD, MEMORY);
	ret |= bed.control->alloc_pd(context, &bed.pd);
	ret |= bed.control->create_cq(context, 64, NULL, NULL, 0, &bed.cq);
	ret |= bed.control->reg_mr(bed.pd, bed.memory + GUARDED, MEMORY - 2 * GUARDED,
				   ACCESS, &bed.mr);
	init.send_cq = init.recv_cq = bed.cq;
	ret |= bed.control->create_qp(bed.pd, &init, &bed.qp);
	ret |= connect_qp();
	ret |= snt__udp_receiver_init(&bed.receiver, &bed.socket, &bed.address);
	assert(!ret);
}

static void close_bed(void)
{
	int ret = bed.control->destroy_qp(bed.qp);

	ret |= bed.control->destroy_cq(bed.cq);
	ret |= bed.control->dereg_mr(bed.mr);
	ret |= bed.control->dealloc_pd(bed.pd);
	ret |= snt__soft_device_destroy(bed.device);
	assert(!ret);
	snt__udp_receiver_finish(&bed.receiver);
	for (unsigned i = 0; i < GUARDED; i++)
		assert(bed.memory[i] == GUARD && bed.memory[MEMORY - 1 - i] == GUARD);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned messages = 0;

	memset(&bed, 0, sizeof(bed));
	bed.data = data;
	bed.size = size;
	open_bed();
	while (bed.size)
		messages += snt__udp_receive(&bed.receiver, bed.device, 0);
	assert(bed.receiver.stats.messages == messages);
	assert(bed.receiver.stats.packets <= bed.bytes);
	assert(snt__soft_device_stats(bed.device)->packets_in +
		       bed.receiver.stats.damaged >=
	       messages);
	close_bed();
	return 0;
}
