"""Embeds the files of a page as C++ strings, so that the binary does not need them at run time."""

def page_files(name, texts):
    """Generates NAME.cc with `extern const char KEY[]` in namespace rankwise for each list of files.

    Args:
      name: the name of the target.
      texts: a dict from the name of each string to the files that it concatenates.
    """
    lines = ["text %s %s" % (key, " ".join(["$(location %s)" % file for file in files])) for key, files in texts.items()]
    native.genrule(
        name = name,
        srcs = [file for files in texts.values() for file in files],
        outs = [name + ".cc"],
        cmd = """
          text() { printf 'extern const char %s[] = R"page(' "$$1"; shift; cat "$$@"; printf ')page";\\n'; }
          {
            printf 'namespace rankwise {\\n'
            """ + "\n".join(lines) + """
            printf '}\\n'
          } > $@
        """,
    )
