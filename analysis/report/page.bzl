"""Files of a page as C++ strings, so that the binary needs none of them where it runs."""

def page_files(name, texts):
    """Generates NAME.cc with `extern const char KEY[]` of namespace rankwise for each list of files.

    Args:
      name: of the target.
      texts: the names of the strings, each with its files, which follow one another in it.
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
