"""Files that break one rule of the format each, and what both readers say to them."""

from __future__ import annotations

import struct

from hmm_bytes import (
    CACHED,
    EXTERNAL,
    LENGTH,
    NONE,
    PAYLOAD,
    SIBLING,
    G,
    Part,
    W,
    X,
    Y,
    Z,
    container,
    gather,
    graph,
    hmw,
    op,
    part,
    port,
    ports,
    raw_graph,
    split,
    text,
    value,
    weight,
    weights,
    with_graph,
    with_parts,
    with_ports,
    with_weights,
)

# name: (file, what every reader's message contains)
CASES: dict[str, tuple[bytes, str]] = {
    # Foreign files.
    "empty": (b"", "the file is empty"),
    "zip": (b"PK\x03\x04" + bytes(60), "zip archive"),
    "pickle": (b"\x80\x02}q\x00X" + bytes(60), "pickle"),
    "gguf": (b"GGUF\x03" + bytes(60), "GGUF"),
    "safetensors": (struct.pack("<Q", 40) + b'{"a":{' + bytes(40), "safetensors"),
    "elf": (b"\x7fELF\x02\x01" + bytes(60), "ELF"),
    "gzip": (b"\x1f\x8b\x08" + bytes(60), "gzip"),
    "onnx": (b"\x08\x08\x12\x07pytorch\x1a", "ONNX"),
    "json": (b'{"architectures": ["Qwen3ForCausalLM"]}', "text or JSON"),
    "git_lfs_pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
    "vendor_or_unknown": (b"HMCC\x01\x02\0\0" + bytes(200), "vendor's compiler cannot run here.*tcim-lite compile"),
    # Header, section 2.
    "header_cut": (b"TCIMHMM\0" + bytes(40), "header alone takes 128"),
    "version_major_newer": (container([G, W], version=(2, 0)), r"format version 2\.0.*update tcim_lite"),
    "version_major_older": (container([G, W], version=(0, 0)), r"format version 0\.0.*compile the model again"),
    "header_bytes": (container([G, W], header_bytes=256), "header_bytes is 256"),
    "file_cut": (container([G, W])[:-4], "copy it again"),
    "file_longer": (container([G, W], tail=b"x"), "something was appended"),
    "no_sections": (container([], count=0), "section_count is 0"),
    "too_many_sections": (container([G, W], count=65), "section_count is 65"),
    "section_table_cut": (container([Part(1, b"")], count=60), "table of 60 sections does not fit"),
    "section_table_offset": (container([G, W], table_offset=192), "section_table_offset is 192"),
    "header_checksum": (container([G, W], crc=1), "header and section table have CRC-32C"),
    "other_target": (container([G, W], target=b"xh1"), "target 'xh1', expected 'xh2'"),
    "target_not_padded": (container([G, W], target=b"xh2\0x"), "target is"),
    "ncore_zero": (container([G, W], ncore=0), "ncore is 0"),
    "ndevice_zero": (container([G, W], ndevice=0), "ndevice is 0"),
    "producer_not_padded": (container([G, W], producer=b"x" * 32), "producer is"),
    "producer_not_utf8": (container([G, W], producer=b"\xff"), "producer is not UTF-8"),
    "wrong_id": (container([G, W], id_=bytes(32)), "id in the header is not the SHA-256"),
    # Section table, section 3.
    "required_section_unknown": (container([G, W, Part(99, b"x")]), "kind 99 is required and unknown"),
    "section_twice": (container([G, W, W]), "weight_table appears twice"),
    "section_flags": (container([G, W, Part(2, b"x", flags=2)]), "flags 2"),
    "section_reserved": (container([G, W, Part(2, b"x", reserved=7)]), "reserved 7"),
    "section_unaligned": (container([G, Part(3, weights(), offset=200)]), "offset 200, expected a multiple of 64"),
    "payload_unaligned": (container([G, W, Part(4, bytes(64), offset=448)]), "expected a multiple of 4096"),
    "section_in_header": (container([G, Part(3, weights(), offset=64)]), "inside the header and table"),
    "section_outside": (container([G, Part(3, weights(), nbytes=1 << 20)]), "lie outside a file"),
    "section_size_wraps": (container([G, Part(3, weights(), nbytes=2**64 - 64)]), "lie outside a file"),
    "section_offset_wraps": (container([G, Part(3, weights(), offset=2**64 - 64)]), "lie outside a file"),
    "sections_overlap": (container([G, Part(3, weights(), offset=192)]), "overlap"),
    "section_checksum": (container([G, Part(3, weights(), crc=5)]), "section weight_table has CRC-32C"),
    "payload_checksum_set": (container([G, W, Part(4, bytes(64), crc=5)]), "section payload has a CRC-32C"),
    "graph_missing": (container([W]), "section graph is missing"),
    "weight_table_missing": (container([G]), "section weight_table is missing"),
    "graph_in_weights_file": (hmw(G, W), "does not belong into a .hmw"),
    "custom_msg_not_utf8": (container([G, W, Part(2, b"\xc0\x80")]), "custom_msg is not UTF-8"),
    "custom_msg_with_nul": (container([G, W, Part(2, b"a\0b")]), "custom_msg contains a NUL"),
    # Weight table, section 4.
    "weight_table_cut": (with_weights(count=1), "0 bytes of names take 104"),
    "weight_table_count_huge": (with_weights(count=0xFFFFFFFF), "the limit is 65536"),
    "weight_table_tail": (with_weights(tail=b"x"), "0 bytes of names take 8"),
    "weight_names_outside": (with_weights(weight(name_bytes=9)), "name of weight 0 is 9 bytes"),
    "weight_name_empty": (with_weights(weight("", hash=bytes(32))), "name of weight 0 is 0 bytes"),
    "weight_name_offset_wraps": (with_weights(weight(name_offset=0xFFFFFFFF)), "name of weight 0"),
    "weight_name_not_utf8": (with_weights(weight(b"\xed\xa0\x80")), "name of weight 0 is not UTF-8"),
    "weight_twice": (with_weights(weight(), weight()), "weight 'w' appears twice"),
    "weight_dtype_unknown": (with_weights(weight(dtype=9)), "has dtype 9"),
    "weight_format_unknown": (with_weights(weight(format=6)), "has format 6"),
    "weight_rank_zero": (with_weights(weight(rank=0)), "has rank 0"),
    "weight_rank_beyond": (with_weights(weight(rank=5)), "has rank 5"),
    "weight_external_unknown": (with_weights(weight(external=2)), "has external 2"),
    "weight_extent_zero": (with_weights(weight(extents=(0, 0, 0, 0))), "extent outside 1 to 2"),
    "weight_extent_huge": (with_weights(weight(extents=(1 << 63, 0, 0, 0))), "extent outside 1 to 2"),
    "weight_extent_beyond_rank": (with_weights(weight(extents=(4, 1, 0, 0))), "beyond the rank must be 0"),
    "weight_shape_wraps": (with_weights(weight(rank=2, extents=(1 << 40, 1 << 40, 0, 0))), r"2\^48"),
    "weight_bytes": (with_weights(weight(bytes=12)), r"has 12 bytes; dense float32 \[4\] takes 16"),
    "weight_packed_dtype": (
        with_weights(weight(format=1, rank=2, extents=(16, 64, 0, 0))), "format linear_w4 has dtype uint8"),
    "weight_packed_rank": (with_weights(weight(format=4)), r"has a shape \[N, K\] or \[E, N, K\], got \[4\]"),
    "weight_packed_rank_4": (
        with_weights(weight(format=4, rank=4, extents=(1, 1, 1, 1))), r"has a shape \[N, K\] or \[E, N, K\]"),
    "weight_experts_bytes": (
        with_weights(weight(format=4, rank=3, extents=(3, 2, 1, 0), bytes=64)), r"has 64 bytes; .* takes 192"),
    "weight_experts_inputs": (
        with_weights(weight(format=2, dtype=2, rank=3, extents=(2, 16, 32, 0))), "K to be a multiple of 64"),
    "weight_experts_wrap": (
        with_weights(weight(format=4, rank=3, extents=(1 << 30, 1 << 20, 1, 0))), r"2\^48"),
    "weight_packed_inputs": (
        with_weights(weight(format=2, dtype=2, rank=2, extents=(16, 32, 0, 0))), "K to be a multiple of 64"),
    "weight_unaligned": (with_weights(weight(offset=4100)), "expected a multiple of 64"),
    "weight_before_payload": (with_weights(weight(offset=64)), "lie outside the payload"),
    "weight_after_payload": (with_weights(weight(offset=4160)), "lie outside the payload"),
    "weight_offset_wraps": (with_weights(weight(offset=2**64 - 64)), "lie outside the payload"),
    "weight_without_payload": (with_weights(weight(), payload=None), "lie outside the payload"),
    "weights_overlap": (with_weights(weight("a"), weight("b")), "'a' and 'b' overlap"),
    "weights_overlap_partly": (
        with_weights(
            weight("a", extents=(17, 0, 0, 0), bytes=68, hash=b"h" * 32), weight("b", offset=4160, hash=b"h" * 32),
            payload=Part(4, bytes(128))), "'a' and 'b' overlap"),
    "weight_external_with_offset": (with_weights(weight(external=1), sibling=SIBLING), "expected 0"),
    "weight_external_in_weights_file": (hmw(Part(3, weights(EXTERNAL))), "which a .hmw cannot have"),
    "sibling_missing": (with_weights(EXTERNAL), "sibling section exactly when"),
    "sibling_without_external": (with_weights(weight(), sibling=SIBLING), "sibling section exactly when"),
    "sibling_cut": (with_weights(EXTERNAL, sibling=SIBLING[:-1]), "sibling section is cut off"),
    "sibling_tail": (with_weights(EXTERNAL, sibling=SIBLING + b"x"), "1 bytes after its end"),
    "sibling_with_folder": (with_weights(EXTERNAL, sibling=bytes(32) + text("../a.hmw")), "not a bare file name"),
    "sibling_backslash": (with_weights(EXTERNAL, sibling=bytes(32) + text("b\\a.hmw")), "not a bare file name"),
    "sibling_dots": (with_weights(EXTERNAL, sibling=bytes(32) + text("..")), "not a bare file name"),
    "sibling_empty": (with_weights(EXTERNAL, sibling=bytes(32) + text("")), "not a bare file name"),
    "sibling_nul": (with_weights(EXTERNAL, sibling=bytes(32) + text("a\0b")), "contains a NUL"),
    # Graph, section 5.
    "graph_empty": (raw_graph(b""), "graph section is cut off"),
    "graph_cut": (raw_graph(graph()[:-5]), "graph section"),
    "graph_tail": (with_graph(tail=b"x"), "1 bytes after its end"),
    "graph_name_too_long": (with_graph(name="n" * 1025), "the limit is 1024"),
    "value_count_huge": (raw_graph(text("g") + struct.pack("<II", NONE, 0xFFFFFFFF)), "says 4294967295 values"),
    "value_count_beyond_bytes": (raw_graph(text("g") + struct.pack("<II", NONE, 1 << 16)), "which take at least"),
    "op_count_huge": (raw_graph(text("g") + struct.pack("<III", NONE, 0, 0xFFFFFFFF)), "says 4294967295 ops"),
    "op_count_beyond_bytes": (raw_graph(text("g") + struct.pack("<III", NONE, 0, 1 << 16)), "which take at least"),
    "op_input_count_huge": (
        raw_graph(graph(ops=(text("Add") + struct.pack("<HHII", 1, 0, 0xFFFFFFFF, 1),))), "the inputs of op Add needs"),
    "value_name_empty": (with_graph((value(""), Y)), "a value has no name"),
    "value_name_not_utf8": (with_graph((value(b"\xf5"), Y)), "value's name is not UTF-8"),
    "value_twice": (with_graph((X, value("x", kind=3))), "two values have the name 'x'"),
    "value_kind_unknown": (with_graph((value("x", kind=4), Y)), "has kind 4"),
    "value_dtype_unknown": (with_graph((value("x", dtype=0), Y)), "has dtype 0"),
    "value_format_unknown": (with_graph((value("x", format=9), Y)), "has format 9"),
    "value_rank_zero": (with_graph((value("x", shape=()), Y)), "has rank 0"),
    "value_rank_beyond": (with_graph((value("x", shape=(1,) * 9), Y)), "has rank 9"),
    "value_extent_zero": (with_graph((value("x", shape=(0,)), Y)), "extents are 1 to 2"),
    "value_extent_huge": (with_graph((value("x", shape=(2**64 - 1,)), Y)), "extents are 1 to 2"),
    "value_shape_wraps": (with_graph((value("x", shape=(1 << 40, 1 << 40)), Y)), r"more than 2\^48"),
    "value_packed_but_input": (with_graph((value("x", format=4), Y)), "has format linear_f32, expected dense"),
    "value_weight_of_input": (with_graph((value("x", weight=0), Y)), "only weights have one"),
    "value_weight_missing": (with_graph((value("x", kind=2), Y), inputs=()), "only weights have one"),
    "value_weight_outside": (with_graph((value("x"), Y, value("w", kind=2, weight=3))), "names weight 3"),
    "value_weight_differs": (
        container(
            [Part(1, graph((value("x"), Y, value("w", kind=2, weight=0)))), Part(3, weights(weight())), PAYLOAD]
        ),
        "its weight 'w' is float32 dense"),
    "op_unknown": (with_graph(ops=(op("Softplus2"),)), "op 'Softplus2' version 1 is unknown"),
    "op_version_newer": (with_graph(ops=(op(version=3),)), "op 'Add' version 3 is unknown"),
    "op_version_0": (with_graph(ops=(op(version=0),)), "op 'Add' version 0 is unknown"),
    "op_value_outside": (with_graph(ops=(op(inputs=(0, 7)),)), "names value 7"),
    "op_reads_too_early": (with_graph(ops=(op(inputs=(0, 1)),)), "reads 'y' before it is produced"),
    "op_writes_input": (with_graph(ops=(op(outputs=(0,)),)), "writes 'x', which is of kind input"),
    "op_writes_twice": (with_graph(ops=(op(), op())), "already produced"),
    # Keys are compared with each other: 65,535 of them would take seconds, and there may be many such ops.
    "attribute_count_huge": (
        with_graph(ops=(op(attributes=[text(str(n)) + b"\0" + bytes(8) for n in range(65535)]),)),
        "has 65535 attributes, the limit is 64",
    ),
    "attribute_type_unknown": (with_graph(ops=(op(attributes=[text("a") + b"\3"]),)), "has type 3"),
    "attribute_twice": (with_graph(ops=(op(attributes=[text("a") + b"\0" + bytes(8)] * 2),)), "appears twice"),
    "input_outside": (with_graph(inputs=(9,)), "list of inputs names value 9"),
    "input_missing": (with_graph(inputs=()), "exactly the inputs and states"),
    "input_twice": (with_graph(inputs=(0, 0)), "listed twice"),
    "input_is_intermediate": (with_graph(inputs=(0, 1)), "exactly the inputs and states"),
    "output_outside": (with_graph(outputs=(9,)), "list of outputs names value 9"),
    "output_twice": (with_graph(outputs=(1, 1)), "listed twice"),
    "output_is_input": (with_graph(outputs=(0,)), "expected intermediate"),
    "output_not_produced": (with_graph(ops=()), "produced by no op"),
    "live_rows_outside": (with_graph(live_rows=9), "live_rows names value 9"),
    "live_rows_wrong_value": (with_graph(live_rows=0), "live_rows is 'x'"),
    # Several devices, section 5.1.
    "ndevice_huge": (container([G, W], ndevice=33), "ndevice is 33, expected at most 32"),
    "graph_count": (with_parts(part(0)), "there are 1 graph sections, expected 2"),
    "split_missing": (container([part(0), part(1), W], ndevice=2), "exactly when ndevice, which is 2,"),
    "split_without_devices": (with_parts(G, ndevice=1), "exactly when ndevice, which is 1,"),
    "split_cut": (with_parts(part(0), part(1), cut=split()[:-2]), "split section says 1 axes, which take at least 4"),
    "split_tail": (with_parts(part(0), part(1), cut=split() + b"x"), "split section has 1 bytes after its end"),
    "split_count": (with_parts(part(0), part(1), cut=split((-1, -1))), "2 axes of inputs, the graphs have 1 inputs"),
    "split_axis": (with_parts(part(0), part(1), cut=split((2,))), "is split on axis 2, expected -1 to 1"),
    "split_axis_negative": (with_parts(part(0), part(1), cut=split((-1,), (-2,))), "output 'y'.* is split on axis -2"),
    "split_length": (
        with_parts(*(part(rank, more=(LENGTH,), inputs=(0, 2)) for rank in range(2)), cut=split((-1, 0))),
        "'length' is int32 and split on axis 0"),
    "split_live_rows": (
        with_parts(
            *(
                part(
                    rank, x=value("x", shape=(1, 1, 1)), y=value("y", kind=3, shape=(1, 1, 2)), more=(LENGTH,),
                    inputs=(0, 2), live_rows=2)
                for rank in range(2)
            ),
            cut=split((1, -1))),
        r"input 'x', .*\[1, 1, 1\], has live rows and is split on axis 1, expected -1 or more than 1"),
    "parts_differ_count": (
        with_parts(part(0), part(1, more=(LENGTH,), inputs=(0, 2))), "part 1 has 2 inputs, part 0 has 1"),
    "parts_differ_name": (with_parts(part(0), part(1, x=value("u"))), "input 0 is 'x' in part 0, 'u' in part 1"),
    "parts_differ_dtype": (
        with_parts(part(0), part(1, x=value("x", dtype=7), y=value("y", kind=3, dtype=7, shape=(1, 2)))),
        "input 'x' is .*float32.* in part 0 and .*float16.* in part 1"),
    "parts_differ_shape": (
        with_parts(part(0), part(1, x=value("x", shape=(2, 1)), y=value("y", kind=3, shape=(2, 2)))),
        r"input 'x' is .*\[1, 1\] in part 0 and .*\[2, 1\] in part 1; parts may differ only along the split axis"),
    "parts_differ_live_rows": (
        with_parts(
            *(part(rank, more=(LENGTH,), inputs=(0, 2), live_rows=(2, NONE)[rank]) for rank in range(2)),
            cut=split((-1, -1))),
        "live_rows of part 1 is another input"),
    "gather_count": (
        with_parts(part(0, more=(Z,), ops=(gather(0), gather(0, output=2))), part(1, more=(Z,))),
        "part 1 has 1 AllGather ops, part 0 has 2"),
    "gather_shape": (
        with_parts(*(
            part(rank, more=(value("z", kind=3, shape=(1, 2 + rank)),), ops=(gather(rank), gather(rank, output=2)))
            for rank in range(2)
        )), r"AllGather 1 gives 'z', .*\[1, 2\], in part 0 and 'z', .*\[1, 3\], in part 1"),
    "gather_tiles": (with_parts(part(0), part(0)), r"AllGather 0 \('y'\) of part 1 begins at column 0, expected 1"),
    "gather_tiles_short": (
        with_parts(*(part(rank, y=value("y", kind=3, shape=(1, 3))) for rank in range(2))),
        r"AllGather 0 \('y'\): the parts give 2 columns of 3"),
    "gather_alone": (container([part(0), W]), "has an AllGather, which needs ndevice to be 2"),
    # Roles and aliases, section 5.2.
    "ports_required_before_1_1": (
        container([G, Part(7, ports()), W], version=(1, 0)), "is required and unknown to this reader"),
    "ports_twice": (container([G, Part(7, ports()), Part(7, ports()), W]), "ports appears twice"),
    "ports_in_weights_file": (hmw(Part(7, ports()), W), "ports does not belong into a .hmw"),
    "ports_cut": (container([G, Part(7, ports()[:-1]), W]), "ports section says 1 outputs, which take at least 16"),
    "ports_tail": (with_ports(tail=b"x"), "ports section has 1 bytes after its end"),
    "ports_count": (with_ports((port(), port())), "ports section describes 2 inputs, the graph has 1"),
    "ports_role_not_utf8": (with_ports((port(b"\xff"),)), "the role of 'x' is not UTF-8"),
    "ports_layer_negative": (with_ports((port("a", layer=-2),)), "'x' has role 'a', layer -2.*numbers from 0 on or -1"),
    "ports_slot_without_role": (with_ports((port(slot=0),)), "'x' has role '', layer -1, slot 0; expected a name"),
    "ports_cache_no_state": (
        with_ports((port("v_cache", 0, 0),)), "'x', .*, has role 'v_cache', .*; expected a state of some layer"),
    "ports_positions_shape": (
        with_ports((port("position_ids"),)), r"'x', .*, has role 'position_ids', .*; expected an input int32 \[1, T\]"),
    "ports_mask_shape": (
        with_ports((port("local_attention_mask"),)),
        r"'x', .*, has role 'local_attention_mask', .*; expected a float input \[1, 1, T, S\]"),
    "ports_cache_without_layer": (
        container([CACHED, Part(7, ports((port(), port("k_cache")))), W]), "'c', .*; expected a state of some layer"),
    "ports_length_shape": (
        with_ports((port("valid_length", slot=0),)), r"'x', .*, has role 'valid_length', .*; expected an input int32"),
    "ports_length_output": (
        with_ports(outputs=(port("current_length"),)), "'y', .*'current_length', .*; expected an input int32"),
    "ports_role_twice": (
        container([Part(1, graph((X, Y, LENGTH), inputs=(0, 2))), Part(7, ports((port("a", 1), port("a", 1)))), W]),
        "'length' has role 'a', layer 1, slot -1, which another one has already"),
    "ports_alias_count": (with_ports((port(aliases=list("abcdefghijklmnopq")),)), "says 17 aliases of 'x'"),
    "ports_alias_count_beyond_bytes": (
        with_ports((port(),), (port(count=2),)), "says 2 aliases of 'y', which take at least 8 bytes"),
    "ports_alias_empty": (with_ports((port(aliases=("",)),)), "alias '' of 'x' is empty or taken"),
    "ports_alias_of_itself": (with_ports((port(aliases=("x",)),)), "alias 'x' of 'x' is empty or taken"),
    "ports_alias_twice": (with_ports((port(aliases=("u", "u")),)), "alias 'u' of 'x' is empty or taken"),
    "ports_alias_is_a_name": (
        container([Part(1, graph((X, Y, LENGTH), inputs=(0, 2))), Part(7, ports((port(), port(aliases=("x",))))), W]),
        "alias 'x' of 'length' is empty or taken"),
}  # fmt: skip
